/** Tokens: who may do what. The text of one is shown once, when it is made. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, serverNow } from "../../api/client";
import type { Token } from "../../api/types";
import { useSession } from "../../session";
import { Confirm } from "../../ui/Dialog";
import { type Column, Listed } from "../../ui/Listed";
import { Ago, Labels, Time } from "../../ui/small";
import { Empty } from "../../ui/states";
import { useToasts } from "../../ui/toasts";
import { NewToken } from "./NewToken";

export default function TokensPage() {
  const { may, whole, who } = useSession();
  const [making, setMaking] = useState(false);
  const [ending, setEnding] = useState<Token | null>(null);
  const revoke = useRevoke(() => setEnding(null));
  if (!may("admin") || !whole) return <Empty title="You may not see tokens">It takes the role admin, without a limit to some pipelines; you are {who.role}.</Empty>;
  const action: Column<Token> = {
    title: "", className: "tight", cell: (token) => stateOf(token) === "valid" && <button type="button" className="danger" onClick={() => setEnding(token)} aria-label={`Revoke ${token.name}`}>Revoke…</button>,
  };
  return (
    <>
      <title>Tokens · Penstock</title>
      <div className="head-line">
        <h1>Tokens</h1>
        <button type="button" className="primary" onClick={() => setMaking(true)}>New token</button>
      </div>
      <Listed
        what="tokens" queryKey={["tokens"]} columns={[...COLUMNS, action]} id={({ id }) => id}
        load={(after) => api.get("/api/v1/tokens", { query: { limit: 100, after } })} empty={<Empty title="No tokens" />}
      />
      {making && <NewToken close={() => setMaking(false)} />}
      {ending && (
        <Confirm title={`Revoke ${ending.name}?`} action="Revoke" busy={revoke.isPending} confirm={() => revoke.mutate(ending.id)} close={() => setEnding(null)}>
          <p>From now on it opens nothing. Whoever uses it is locked out at once; this cannot be taken back.</p>
        </Confirm>
      )}
    </>
  );
}

function stateOf({ revokedAt, expiresAt }: Token): string {
  if (revokedAt) return "revoked";
  return expiresAt && Date.parse(expiresAt) <= serverNow() ? "expired" : "valid";
}

const COLUMNS: Column<Token>[] = [
  { title: "Name", cell: ({ name, session }) => <><b>{name}</b> {session && <span className="badge stopped">login</span>}</> },
  { title: "Role", className: "tight", cell: ({ role }) => role },
  { title: "Only pipelines with", cell: ({ scope }) => (Object.keys(scope).length > 0 ? <Labels labels={scope} /> : "all") },
  { title: "State", className: "tight", cell: (token) => <span className={`badge ${stateOf(token) === "valid" ? "healthy" : "stopped"}`}>{stateOf(token)}</span> },
  { title: "Expires", className: "tight", cell: ({ expiresAt }) => (expiresAt ? <Time at={expiresAt} /> : "never") },
  { title: "Last used", className: "tight", cell: ({ lastUsedAt }) => <Ago at={lastUsedAt} /> },
  { title: "Made", className: "tight", cell: ({ createdAt }) => <Time at={createdAt} /> },
];

function useRevoke(after: () => void) {
  const client = useQueryClient();
  const toasts = useToasts();
  return useMutation({
    mutationFn: (token: string) => api.delete("/api/v1/tokens/{token}", { path: { token } }),
    onSuccess: ({ name }) => toasts.done(`${name} is revoked`),
    onError: (error) => toasts.failed(error),
    onSettled: () => {
      after();
      void client.invalidateQueries({ queryKey: ["tokens"] });
    },
  });
}
