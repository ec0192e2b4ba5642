/** Alerts that fire or fired, and silences: for a while nobody is told. */
import { useSearchParams, Link } from "react-router";
import { useState } from "react";
import { api } from "../../api/client";
import type { Alert } from "../../api/types";
import { useSession } from "../../session";
import { type Column, Listed } from "../../ui/Listed";
import { Ago, Severity, Time } from "../../ui/small";
import { Empty } from "../../ui/states";
import { SilenceDialog, type Subject } from "./SilenceDialog";
import { Silences } from "./Silences";

const STATES = { "": "All", firing: "Firing", pending: "Pending", resolved: "Resolved" } as const;

export default function AlertsPage() {
  const [query, setQuery] = useSearchParams();
  const { may, whole } = useSession();
  const [silencing, setSilencing] = useState<Subject | null>(null);
  const pipeline = query.get("pipeline") ?? "";
  const state = query.get("state") ?? "";
  const choose = (part: Record<string, string>) =>
    setQuery(Object.fromEntries(Object.entries({ pipeline, state, ...part }).filter(([, value]) => value)), { replace: true });
  return (
    <>
      <title>Alerts · Penstock</title>
      <div className="head-line">
        <h1>Alerts{pipeline && <> of <Link to={`/pipelines/${encodeURIComponent(pipeline)}`}>{pipeline}</Link></>}</h1>
        <div className="buttons">
          {pipeline && <button type="button" onClick={() => choose({ pipeline: "" })}>Alerts of all pipelines</button>}
          <label>
            <span className="unseen">State</span>
            <select value={state} onChange={({ target }) => choose({ state: target.value })}>
              {Object.entries(STATES).map(([key, words]) => <option key={key} value={key}>{words}</option>)}
            </select>
          </label>
          {may("operator") && (pipeline || whole) && <button type="button" onClick={() => setSilencing({ pipeline })}>Silence…</button>}
        </div>
      </div>
      <Listed
        key={`${pipeline} ${state}`} what="alerts" queryKey={["alerts", "list", pipeline, state]} id={({ id }) => id} every={5000}
        columns={may("operator") ? [...COLUMNS, silence(setSilencing)] : COLUMNS}
        load={(after) => api.get("/api/v1/alerts", { query: { pipeline: pipeline || undefined, state: state || undefined, limit: 100, after: after === undefined ? undefined : Number(after) } })}
        empty={<Empty title={state === "firing" ? "No alert fires" : "No alert has fired"}>Pipelines say under <code>alerts</code> of their file when somebody is to be told.</Empty>}
      />
      <Silences />
      {silencing && <SilenceDialog subject={silencing} close={() => setSilencing(null)} />}
    </>
  );
}

const COLUMNS: Column<Alert>[] = [
  { title: "State", className: "tight", cell: ({ severity, state }) => <Severity severity={severity} state={state} /> },
  { title: "Severity", className: "tight", cell: ({ severity }) => severity },
  { title: "Pipeline", className: "tight", cell: ({ pipeline }) => <Link to={`/pipelines/${encodeURIComponent(pipeline)}`}>{pipeline}</Link> },
  { title: "Rule", cell: ({ rule }) => rule },
  { title: "Evidence", cell: ({ evidence }) => evidence },
  { title: "Since", className: "tight", cell: ({ firedAt, since }) => <Ago at={firedAt ?? since} /> },
  { title: "Resolved", className: "tight", cell: ({ resolvedAt }) => resolvedAt && <Time at={resolvedAt} /> },
];

function silence(choose: (subject: Subject) => void): Column<Alert> {
  return {
    title: "", className: "tight",
    cell: ({ pipeline, rule, state }) => state !== "resolved" && <button type="button" onClick={() => choose({ pipeline, rule })} aria-label={`Silence ${rule} of ${pipeline}`}>Silence…</button>,
  };
}
