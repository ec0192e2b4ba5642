/** What happened to all pipelines. */
import { useSearchParams } from "react-router";
import { EventList } from "./EventList";

const KINDS = ["state", "start", "stop", "run_ended", "alert", "notice", "fail_over", "failover_done", "pipeline.create", "pipeline.upgrade", "pipeline.start", "pipeline.stop", "pipeline.delete", "pipeline.replay"];

export default function EventsPage() {
  const [query, setQuery] = useSearchParams();
  const kind = query.get("kind") ?? "";
  return (
    <>
      <title>Events · Penstock</title>
      <div className="head-line">
        <h1>Events</h1>
        <label>
          <span className="unseen">Kind</span>
          <select value={kind} onChange={({ target }) => setQuery(target.value ? { kind: target.value } : {}, { replace: true })}>
            <option value="">All kinds</option>
            {KINDS.map((each) => <option key={each} value={each}>{each.replaceAll("_", " ")}</option>)}
          </select>
        </label>
      </div>
      <EventList key={kind} kind={kind} />
    </>
  );
}
