/** Events of one pipeline or of all, the newest first. */
import { Link } from "react-router";
import { api } from "../../api/client";
import type { Event } from "../../api/types";
import { tone } from "../../logic/timeline";
import { type Column, Listed } from "../../ui/Listed";
import { Time } from "../../ui/small";
import { Empty } from "../../ui/states";

const SIGNS = { bad: "▲", change: "●", plain: "" } as const;

const COLUMNS: Column<Event>[] = [
  { title: "When", className: "tight", cell: ({ at }) => <Time at={at} /> },
  { title: "Pipeline", className: "tight", cell: ({ pipeline }) => pipeline && <Link to={`/pipelines/${encodeURIComponent(pipeline)}`}>{pipeline}</Link> },
  { title: "Kind", className: "tight", cell: (event) => <span className={`tone ${tone(event)}`}><span aria-hidden="true">{SIGNS[tone(event)]}</span> {event.kind.replaceAll("_", " ")}</span> },
  { title: "What", cell: ({ text }) => text },
];

export function EventList({ pipeline, kind }: { pipeline?: string; kind?: string }) {
  return (
    <Listed
      what="events" queryKey={["events", pipeline ?? "", kind ?? ""]} id={({ id }) => id} every={5000}
      columns={pipeline ? COLUMNS.filter(({ title }) => title !== "Pipeline") : COLUMNS}
      load={(after) => api.get("/api/v1/events", { query: { pipeline, kind: kind || undefined, limit: 100, after: after === undefined ? undefined : Number(after) } })}
      empty={<Empty title="Nothing has happened">Changes, decisions of the supervisor with their reasons, and ends of runs are listed here.</Empty>}
    />
  );
}
