/** For how long, and why, nobody is to be told. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "../../api/client";
import { Dialog } from "../../ui/Dialog";
import { Mistakes } from "../../ui/states";
import { useToasts } from "../../ui/toasts";

export interface Subject {
  /** Empty for all pipelines. */
  pipeline: string;
  rule?: string;
}

const LENGTHS = ["30 minutes", "2 hours", "8 hours", "1 day", "7 days"];

export function SilenceDialog({ subject: { pipeline, rule }, close }: { subject: Subject; close: () => void }) {
  const [lasts, setLasts] = useState("2 hours");
  const [why, setWhy] = useState("");
  const client = useQueryClient();
  const toasts = useToasts();
  const save = useMutation({
    mutationFn: () => api.post("/api/v1/silences", { body: { pipeline: pipeline || null, rule: rule ?? null, lasts, why } }),
    onSuccess: () => {
      toasts.done("Silenced");
      void client.invalidateQueries({ queryKey: ["silences"] });
      close();
    },
  });
  return (
    <Dialog title={`Silence ${rule ? `${rule} of ${pipeline}` : pipeline || "all pipelines"}`} close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          save.mutate();
        }}
      >
        <p className="quiet">Alerts go on and are shown here. Only nobody is told of them.</p>
        <label className="field">
          For
          <input list="lengths" value={lasts} onChange={({ target }) => setLasts(target.value)} required maxLength={100} autoFocus />
          <datalist id="lengths">{LENGTHS.map((each) => <option key={each} value={each} />)}</datalist>
        </label>
        <label className="field">
          Why
          <input value={why} onChange={({ target }) => setWhy(target.value)} maxLength={1000} placeholder="so that others know" />
        </label>
        {save.error && <Mistakes error={save.error} />}
        <div className="buttons end">
          <button type="button" onClick={close}>Cancel</button>
          <button type="submit" className="primary" disabled={save.isPending}>Silence</button>
        </div>
      </form>
    </Dialog>
  );
}
