/** The way in: a token, which becomes a cookie that scripts cannot read, or the login of the organisation. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useNavigate, useSearchParams } from "react-router";
import { api } from "../../api/client";
import { codeOf, safeNext } from "../../logic/roles";
import { Mistakes } from "../../ui/states";
import "./login.css";

export default function LoginPage() {
  const [token, setToken] = useState("");
  const [query] = useSearchParams();
  const navigate = useNavigate();
  const client = useQueryClient();
  const ways = useQuery({ queryKey: ["login"], queryFn: () => api.get("/api/v1/login", {}) });
  const login = useMutation({
    mutationFn: (body: { token: string } | { code: string }) => api.post("/api/v1/login", { body }),
    onSuccess: () => {
      setToken("");
      client.clear();
      void navigate(safeNext(query.get("next")), { replace: true });
    },
  });
  const { mutate } = login;
  useEffect(() => {
    const code = codeOf(window.location.hash);
    if (!code) return;
    // A link works once, so it need not stay in the address.
    window.history.replaceState(window.history.state, "", window.location.pathname + window.location.search);
    mutate({ code });
  }, [mutate]);
  return (
    <main className="login">
      <title>Log in · Penstock</title>
      <h1><img src="/icon.svg" alt="" width="30" height="30" /> Penstock</h1>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          mutate({ token: token.trim() });
        }}
      >
        {ways.data?.oidc && <p><a className="button primary wide" href="/api/v1/login/oidc">Log in with your organisation</a></p>}
        <label className="field">
          Token
          <input type="password" autoComplete="current-password" value={token} onChange={({ target }) => setToken(target.value)} required maxLength={200} autoFocus spellCheck={false} />
        </label>
        {login.error && <Mistakes error={login.error} />}
        <button type="submit" className={ways.data?.oidc ? "wide" : "primary wide"} disabled={login.isPending}>Log in</button>
      </form>
      <p className="quiet">The first token is in <code>admin.token</code> of the server's data folder. An admin makes further ones.</p>
    </main>
  );
}
