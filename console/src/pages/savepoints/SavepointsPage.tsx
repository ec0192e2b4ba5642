/** Savepoints of all pipelines, the newest first; each pipeline lists its own. */
import { Link } from "react-router";
import { api } from "../../api/client";
import type { Event } from "../../api/types";
import { type Column, Listed } from "../../ui/Listed";
import { Time } from "../../ui/small";
import { Empty } from "../../ui/states";

const COLUMNS: Column<Event>[] = [
  { title: "When", className: "tight", cell: ({ at }) => <Time at={at} /> },
  { title: "Pipeline", className: "tight", cell: ({ pipeline }) => pipeline && <Link to={`/pipelines/${encodeURIComponent(pipeline)}/savepoints`}>{pipeline}</Link> },
  { title: "Savepoint", cell: ({ data }) => (typeof data.savepoint === "string" ? <b>{data.savepoint}</b> : "") },
  { title: "What", cell: ({ text }) => text },
];

export default function SavepointsPage() {
  return (
    <>
      <title>Savepoints · Penstock</title>
      <div className="head-line"><h1>Savepoints</h1></div>
      <Listed
        what="savepoints" queryKey={["events", "savepoints"]} columns={COLUMNS} id={({ id }) => id} every={5000}
        load={(after) => api.get("/api/v1/events", { query: { kind: "savepoint_taken", limit: 100, after: after === undefined ? undefined : Number(after) } })}
        empty={<Empty title="No savepoints yet">A savepoint of a pipeline is taken on its own page, under Savepoints.</Empty>}
      />
    </>
  );
}
