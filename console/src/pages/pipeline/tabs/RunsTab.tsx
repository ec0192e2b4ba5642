/** Runs, the newest first, and how each ended. */
import { api } from "../../../api/client";
import type { Run } from "../../../api/types";
import { span } from "../../../logic/format";
import { type Column, Listed } from "../../../ui/Listed";
import { Time } from "../../../ui/small";
import { Empty } from "../../../ui/states";

const GOOD = ["stopped", "done"];

const COLUMNS: Column<Run>[] = [
  { title: "Run", className: "tight", cell: ({ id }) => <code>{id}</code> },
  { title: "Started", className: "tight", cell: ({ startedAt }) => <Time at={startedAt} /> },
  { title: "Lasted", className: "tight", cell: ({ startedAt, endedAt }) => (endedAt ? span((Date.parse(endedAt) - Date.parse(startedAt)) / 1000) : "–") },
  { title: "Outcome", cell: (run) => <span className={`badge ${group(run)}`}>{run.outcome ?? "running"}</span> },
  { title: "Why", cell: ({ reason, stopReason, code }) => <>{code && <code>{code}</code>} {reason ?? stopReason}</> },
  { title: "Version", className: "right", cell: ({ version }) => version },
  { title: "Target", className: "tight", cell: ({ target }) => target },
];

function group({ outcome }: Run): string {
  return outcome === null ? "changing" : GOOD.includes(outcome) ? "stopped" : "attention";
}

export default function RunsTab({ name }: { name: string }) {
  return (
    <Listed
      what="runs" queryKey={["runs", name]} columns={COLUMNS} id={({ id }) => id} every={10_000}
      load={(after) => api.get("/api/v1/pipelines/{name}/runs", { path: { name }, query: { limit: 50, after: after === undefined ? undefined : Number(after) } })}
      empty={<Empty title="It has not run yet">Start it, and its runs are listed here.</Empty>}
    />
  );
}
