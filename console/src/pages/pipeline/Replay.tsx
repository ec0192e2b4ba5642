/** Feeds rows that were set aside to the pipeline again, after showing what that would do. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "../../api/client";
import { exact } from "../../logic/format";
import { Confirm } from "../../ui/Dialog";
import { Loading, Mistakes } from "../../ui/states";
import { useToasts } from "../../ui/toasts";

type What = "dead" | "late";

export function Replay({ name, what }: { name: string; what: What }) {
  const [asking, setAsking] = useState(false);
  return (
    <>
      <button type="button" className="primary" onClick={() => setAsking(true)}>Replay…</button>
      {asking && <Question name={name} what={what} close={() => setAsking(false)} />}
    </>
  );
}

function Question({ name, what, close }: { name: string; what: What; close: () => void }) {
  const toasts = useToasts();
  const client = useQueryClient();
  const path = { name };
  const dry = useQuery({
    queryKey: ["replay", name, what],
    queryFn: () => api.post("/api/v1/pipelines/{name}/replay", { path, body: { what, dryRun: true } }),
    gcTime: 0,
    retry: false,
  });
  const go = useMutation({
    mutationFn: () => api.post("/api/v1/pipelines/{name}/replay", { path, body: { what, dryRun: false } }),
    onSuccess: ({ nodes, running }) => {
      const rows = nodes.reduce((sum, each) => sum + each.rows, 0);
      toasts.done(`${exact(rows)} rows are fed again${running ? "" : " when it is next started"}`);
      void client.invalidateQueries({ queryKey: [what, name] });
    },
    onError: (error) => toasts.failed(error),
    onSettled: close,
  });
  const rows = dry.data?.nodes.reduce((sum, each) => sum + each.rows, 0) ?? 0;
  const old = dry.data?.nodes.reduce((sum, each) => sum + each.tooOld, 0) ?? 0;
  return (
    <Confirm title={what === "dead" ? "Replay dead letters?" : "Replay late rows?"} action={`Replay ${exact(rows)} rows`} busy={go.isPending || rows === 0} confirm={() => go.mutate()} close={close}>
      {dry.error ? <Mistakes error={dry.error} /> : !dry.data ? <Loading what="what would be done" /> : (
        <>
          <p>{exact(rows)} rows would be fed to {name} again, each once, {dry.data.running ? "at once" : "when it is next started"}.</p>
          {old > 0 && <p>{exact(old)} are too old to correct anything and stay where they are.</p>}
          <ul>{dry.data.nodes.map((each) => <li key={each.node}>{each.node}: {exact(each.rows)}</li>)}</ul>
          {what === "dead" && <p className="quiet">What is still wrong with a row makes it a dead letter again. Mend the pipeline first.</p>}
        </>
      )}
    </Confirm>
  );
}
