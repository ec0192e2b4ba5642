/** Makes a token and shows its text, once. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "../../api/client";
import type { Role } from "../../api/types";
import { labelsIn } from "../../logic/labels";
import { ROLES } from "../../logic/roles";
import { Dialog } from "../../ui/Dialog";
import { Mistakes } from "../../ui/states";

const MEANINGS: Record<Role, string> = {
  viewer: "sees everything", operator: "also starts, stops and silences", author: "also applies and deletes pipelines",
  coder: "also applies pipelines in Python", admin: "also manages tokens",
};

export function NewToken({ close }: { close: () => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("viewer");
  const [lasts, setLasts] = useState("90 days");
  const [scope, setScope] = useState("");
  const client = useQueryClient();
  const labels = labelsIn(scope);
  const make = useMutation({
    mutationFn: () => api.post("/api/v1/tokens", { body: { name, role, lasts: lasts || null, scope: labels ?? {} } }),
    onSuccess: () => client.invalidateQueries({ queryKey: ["tokens"] }),
    // The answer holds the text; nothing keeps it once the dialog is closed.
    gcTime: 0,
  });
  if (make.data) return <Once token={make.data.token} name={make.data.name} close={close} />;
  return (
    <Dialog title="New token" close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (labels) make.mutate();
        }}
      >
        <label className="field">Name, for whom or what it is<input value={name} onChange={({ target }) => setName(target.value)} required maxLength={100} autoFocus /></label>
        <label className="field">
          Role
          <select value={role} onChange={({ target }) => setRole(target.value as Role)}>
            {ROLES.map((each) => <option key={each} value={each}>{each}: {MEANINGS[each]}</option>)}
          </select>
        </label>
        <label className="field">Valid for, such as 90 days; empty for ever<input value={lasts} onChange={({ target }) => setLasts(target.value)} maxLength={100} /></label>
        <label className="field">
          Only pipelines with these labels; empty for all
          <input value={scope} onChange={({ target }) => setScope(target.value)} placeholder="team=news" aria-invalid={labels === null} />
        </label>
        {labels === null && <p className="mistakes">Write labels as key=value, with commas between.</p>}
        {make.error && <Mistakes error={make.error} />}
        <div className="buttons end">
          <button type="button" onClick={close}>Cancel</button>
          <button type="submit" className="primary" disabled={make.isPending || labels === null}>Make token</button>
        </div>
      </form>
    </Dialog>
  );
}

function Once({ token, name, close }: { token: string; name: string; close: () => void }) {
  const [copied, setCopied] = useState(false);
  return (
    <Dialog title={`Token ${name}`} close={close}>
      <p>Keep it now: it is shown this once, and nobody can show it again.</p>
      <p><code className="once">{token}</code></p>
      <div className="buttons end">
        <button type="button" onClick={() => void navigator.clipboard.writeText(token).then(() => setCopied(true))}>{copied ? "Copied" : "Copy"}</button>
        <button type="button" className="primary" onClick={close}>I have kept it</button>
      </div>
    </Dialog>
  );
}
