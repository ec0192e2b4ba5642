/** Which pipelines need me, how far behind is each, what changed lately. */
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link, useSearchParams } from "react-router";
import { api, serverNow } from "../../api/client";
import type { LivePipeline } from "../../api/types";
import { useNow, usePipelines } from "../../live/pipelines";
import { plural } from "../../logic/format";
import { GROUPS, meaning } from "../../logic/health";
import { countGroups, labelsOf, matching, type Sort, sorted, SORTS, type Wanted, wantedFrom } from "../../logic/overview";
import { useSession } from "../../session";
import { ConnectionNote } from "../../ui/ConnectionNote";
import { Time } from "../../ui/small";
import { Empty, Loading, Refused } from "../../ui/states";
import { Rows } from "./Rows";
import "./overview.css";

const REORDER_MS = 5000;
/** With more pipelines than these, what happened has a page of its own. */
const FEW = 12;

export function OverviewPage() {
  const seen = usePipelines();
  const [query, setQuery] = useSearchParams();
  const wanted = useMemo(() => wantedFrom(query), [query]);
  const now = useNow(1000, serverNow);
  const all = useMemo(() => [...(seen.pipelines?.values() ?? [])], [seen.pipelines]);
  const found = useMemo(() => matching(all, wanted), [all, wanted]);
  const order = useOrder(found, wanted);
  const alerts = useAlertCounts();
  const [turn, setTurn] = useState(0);
  const choose = (part: Partial<Wanted>) => {
    const next = { ...wanted, ...part };
    const params = { q: next.text, state: next.group, label: next.label, sort: next.sort === "urgency" ? "" : next.sort };
    setQuery(new URLSearchParams(Object.entries(params).filter(([, value]) => value)), { replace: true });
  };

  const showAll = () => {
    setQuery({}, { replace: true });
    setTurn(turn + 1);
  };

  if (seen.refusal && !seen.pipelines) return <Refused error={seen.refusal} again={() => location.reload()} />;
  if (!seen.pipelines) return <Loading what="pipelines" />;
  if (all.length === 0) return <FirstPipeline />;
  return (
    <>
      <title>{title(all)}</title>
      <h1 className="unseen">Pipelines</h1>
      <ConnectionNote connection={seen.connection} />
      <Filters key={turn} wanted={wanted} choose={choose} all={all} found={found} focus={query.has("focus")} />
      {order.length > 0
        ? <Rows pipelines={order} now={now} alerts={alerts} />
        : <Empty title="No pipeline is like that"><button type="button" onClick={showAll}>Show all {all.length}</button></Empty>}
      {all.length <= FEW && <Lately />}
    </>
  );
}

/** What the tab of the browser says, so that it need not be looked at. */
function title(all: readonly LivePipeline[]): string {
  const { attention } = countGroups(all);
  return attention > 0 ? `(${attention}) Penstock` : "Penstock";
}

interface FiltersProps {
  wanted: Wanted;
  choose: (part: Partial<Wanted>) => void;
  all: readonly LivePipeline[];
  found: readonly LivePipeline[];
  focus: boolean;
}

function Filters({ wanted, choose, all, found, focus }: FiltersProps) {
  const { may } = useSession();
  const counts = countGroups(found);
  const labels = labelsOf(all);
  return (
    <div className="filters">
      <div className="groups" role="group" aria-label="Show only pipelines that">
        {GROUPS.filter(({ group }) => counts[group] > 0 || wanted.group === group).map(({ group, words }) => (
          <button
            key={group} type="button" className={`group ${group}`} aria-pressed={wanted.group === group}
            onClick={() => choose({ group: wanted.group === group ? "" : group })}
          >
            <b>{counts[group]}</b> {group === "attention" && counts[group] === 1 ? "needs attention" : words}
          </button>
        ))}
      </div>
      <div className="choices">
        <label>
          <span className="unseen">Search pipelines</span>
          {/* The address follows what is typed, not the other way round: it may come later than the next letter. */}
          <input
            id="search" type="search" placeholder="Search  /" defaultValue={wanted.text} autoFocus={focus}
            onChange={(event) => choose({ text: event.target.value })}
          />
        </label>
        {labels.length > 0 && (
          <label>
            <span className="unseen">Label</span>
            <select value={wanted.label} onChange={(event) => choose({ label: event.target.value })}>
              <option value="">All labels</option>
              {labels.map((label) => <option key={label}>{label}</option>)}
            </select>
          </label>
        )}
        <label>
          <span className="unseen">Order</span>
          <select value={wanted.sort} onChange={(event) => choose({ sort: event.target.value as Sort })}>
            {Object.entries(SORTS).map(([key, words]) => <option key={key} value={key}>{words}</option>)}
          </select>
        </label>
        {may("author") && <Link className="button primary" to="/new">New pipeline</Link>}
      </div>
      <p className="unseen" role="status">{plural(found.length, "pipeline")} shown</p>
    </div>
  );
}

/** The rows in their order. They are put in order anew every few seconds only, so that they do not dance. */
function useOrder(found: readonly LivePipeline[], wanted: Wanted): LivePipeline[] {
  const turn = Math.floor(useNow(REORDER_MS, Date.now) / REORDER_MS);
  const key = [turn, wanted.sort, ...found.map(({ name, state }) => `${name} ${state}`)].join("\n");
  const [order, setOrder] = useState({ key: "", names: [] as string[] });
  if (order.key !== key) setOrder({ key, names: sorted(found, wanted.sort).map(({ name }) => name) });
  return useMemo(() => {
    const known = new Map(found.map((each) => [each.name, each]));
    return order.names
      .map((name) => known.get(name))
      .filter((each) => each !== undefined)
      .filter((each) => !wanted.group || meaning(each.state).group === wanted.group);
  }, [order, found, wanted.group]);
}

function useAlertCounts(): ReadonlyMap<string, number> {
  const { data } = useQuery({
    queryKey: ["alerts", "firing"],
    queryFn: () => api.get("/api/v1/alerts", { query: { state: "firing", limit: 1000 } }),
    refetchInterval: 15_000,
  });
  return useMemo(() => {
    const counts = new Map<string, number>();
    for (const { pipeline } of data?.items ?? []) counts.set(pipeline, (counts.get(pipeline) ?? 0) + 1);
    return counts;
  }, [data]);
}

/** What changed, below a list that is short. */
function Lately() {
  const { data } = useQuery({
    queryKey: ["events", "lately"],
    queryFn: () => api.get("/api/v1/events", { query: { limit: 8 } }),
    refetchInterval: 5000,
  });
  if (!data || data.items.length === 0) return null;
  return (
    <section className="lately">
      <div className="section-head"><h2>Lately</h2><Link to="/events">All events</Link></div>
      <ol className="card">
        {data.items.map(({ id, at, pipeline, text }) => (
          <li key={id}><Time at={at} />{pipeline ? <Link to={`/pipelines/${encodeURIComponent(pipeline)}`}>{pipeline}</Link> : <i />}<span title={text}>{text}</span></li>
        ))}
      </ol>
    </section>
  );
}

function FirstPipeline() {
  const { may } = useSession();
  return (
    <Empty title="No pipelines yet">
      {may("author") ? (
        <>
          <p>Write the first one here, with something to start from, and watch it run.</p>
          <p><Link className="button primary" to="/new">Write a pipeline</Link></p>
          <p>Or from a terminal: <code>penstock init</code>, then <code>penstock apply</code>.</p>
        </>
      ) : <p>Somebody with the role author can add one. It will appear here by itself.</p>}
    </Empty>
  );
}
