/** One pipeline: is it behind, since when, why, is anything lost, and what is the next click. */
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { Link, NavLink, useParams } from "react-router";
import { api, serverNow } from "../../api/client";
import type { LivePipeline, Role } from "../../api/types";
import { useNow, usePipelines } from "../../live/pipelines";
import { count, exact, span, utc } from "../../logic/format";
import { evidence, meaning, staleFor } from "../../logic/health";
import { useSession } from "../../session";
import { ConnectionNote } from "../../ui/ConnectionNote";
import { Ago, Labels, StateBadge } from "../../ui/small";
import { Empty, Loading, Refused } from "../../ui/states";
import { Actions } from "./Actions";
import { Operations } from "./Operations";
import "./pipeline.css";
import { NowTab } from "./tabs/NowTab";

const BatchesTab = lazy(() => import("./tabs/BatchesTab"));
const LogsTab = lazy(() => import("./tabs/LogsTab"));
const LedgerTab = lazy(() => import("./tabs/LedgerTab"));
const DeadTab = lazy(() => import("./tabs/DeadTab"));
const LateTab = lazy(() => import("./tabs/LateTab"));
const RunsTab = lazy(() => import("./tabs/RunsTab"));
const SpecTab = lazy(() => import("./tabs/SpecTab"));
const ProblemsTab = lazy(() => import("./tabs/ProblemsTab"));
const SavepointsTab = lazy(() => import("./tabs/SavepointsTab"));
const CutoverTab = lazy(() => import("./tabs/CutoverTab"));
const EventsTab = lazy(() => import("./tabs/EventsTab"));

interface Tab {
  part: string;
  title: string;
  role?: Role;
  show: (pipeline: LivePipeline) => React.ReactNode;
}

const TABS: readonly Tab[] = [
  { part: "", title: "Now", show: (pipeline) => <NowTab pipeline={pipeline} /> },
  { part: "ledger", title: "Ledger", show: ({ name }) => <LedgerTab name={name} /> },
  { part: "dead", title: "Dead letters", role: "operator", show: (pipeline) => <DeadTab pipeline={pipeline} /> },
  { part: "late", title: "Late rows", role: "operator", show: (pipeline) => <LateTab pipeline={pipeline} /> },
  { part: "savepoints", title: "Savepoints", show: (pipeline) => <SavepointsTab pipeline={pipeline} /> },
  { part: "cutover", title: "Cut-over", show: (pipeline) => <CutoverTab pipeline={pipeline} /> },
  { part: "logs", title: "Logs", show: ({ name }) => <LogsTab name={name} /> },
  { part: "problems", title: "Problems", show: ({ name }) => <ProblemsTab name={name} /> },
  { part: "batches", title: "Batches", show: ({ name }) => <BatchesTab name={name} /> },
  { part: "runs", title: "Runs", show: ({ name }) => <RunsTab name={name} /> },
  { part: "events", title: "Events", show: ({ name }) => <EventsTab name={name} /> },
  { part: "spec", title: "Spec", show: (pipeline) => <SpecTab pipeline={pipeline} /> },
];

export default function PipelinePage() {
  const { name = "", part = "" } = useParams();
  return <OnePipeline key={name} name={name} part={part} />;
}

/** On a phone not all tabs fit. */
function intoView(element: HTMLElement | null): void {
  element?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function OnePipeline({ name, part }: { name: string; part: string }) {
  const seen = usePipelines(name);
  const { may } = useSession();
  const pipeline = seen.pipelines?.get(name);
  if (seen.refusal?.status === 404) return <Unknown name={name} />;
  if (seen.refusal && !pipeline) return <Refused error={seen.refusal} again={() => location.reload()} />;
  if (!seen.pipelines) return <Loading what={name} />;
  if (!pipeline) return <Unknown name={name} />;
  const tabs = TABS.filter(({ role }) => !role || may(role));
  const tab = tabs.find((each) => each.part === part);
  return (
    <>
      <title>{`${meaning(pipeline.state).sign} ${name} · Penstock`}</title>
      <ConnectionNote connection={seen.connection} />
      <Head pipeline={pipeline} />
      <nav className="tabs" aria-label="Parts of this pipeline">
        {tabs.map((each) => (
          <NavLink key={each.part} end ref={each.part === part ? intoView : null} to={`/pipelines/${encodeURIComponent(name)}${each.part && `/${each.part}`}`}>{each.title}</NavLink>
        ))}
      </nav>
      <Suspense fallback={<Loading what="the page" />}>
        {tab?.show(pipeline) ?? <Empty title="There is no such page">It may need a higher role than yours.</Empty>}
      </Suspense>
    </>
  );
}

function Unknown({ name }: { name: string }) {
  return (
    <Empty title={`There is no pipeline ${name}`}>
      <p>It may have been deleted, or your token does not see it.</p>
      <Link className="button" to="/">All pipelines</Link>
    </Empty>
  );
}

function Head({ pipeline }: { pipeline: LivePipeline }) {
  const now = useNow(1000, serverNow);
  const stale = staleFor(pipeline, now);
  return (
    <>
      <div className="head-line">
        <div className="title">
          <h1>{pipeline.name}</h1>
          <p className="quiet facts">
            version {pipeline.version} · {pipeline.target} · {meaning(pipeline.state).word.toLowerCase()} for <time dateTime={pipeline.since} title={utc(pipeline.since)}>{span(Math.max(0, Math.round((now - Date.parse(pipeline.since)) / 1000)))}</time> <Labels labels={pipeline.labels} />
          </p>
        </div>
        <Actions pipeline={pipeline} />
      </div>
      <section className="card health" aria-label="Health">
        <p className="sentence">
          <StateBadge state={pipeline.state} /> <span>{pipeline.deleting ? "It is being deleted: it stops, and is then forgotten." : pipeline.reason}</span>
        </p>
        <ul className="number evidence">
          {evidence(pipeline, now).map((each) => <li key={each}>{each}</li>)}
          <Accounts pipeline={pipeline} />
        </ul>
        {stale !== null && <p className="stale">These numbers are {span(Math.round(stale))} old: the run has not reported since.</p>}
        <Operations pipeline={pipeline} />
        <Firing name={pipeline.name} />
      </section>
    </>
  );
}

/** Counts of what did not come through, each a link to the rows themselves. */
function Accounts({ pipeline }: { pipeline: LivePipeline }) {
  const { may } = useSession();
  const to = (part: string) => `/pipelines/${encodeURIComponent(pipeline.name)}/${part}`;
  const link = (part: string, number: number, words: string) =>
    number > 0 && (may("operator")
      ? <li><Link to={to(part)} title={exact(number)}>{count(number)} {words}</Link></li>
      : <li title={exact(number)}>{count(number)} {words}</li>);
  return (
    <>
      <li title={`${exact(pipeline.rowsIn)} rows in, ${exact(pipeline.rowsOut)} out, ${exact(pipeline.rowsFiltered)} filtered`}>
        {count(pipeline.rowsIn)} rows in, {count(pipeline.rowsOut)} out
      </li>
      {link("late", pipeline.rowsLate, "late")}
      {link("dead", pipeline.rowsDead, "dead")}
    </>
  );
}

function Firing({ name }: { name: string }) {
  const { data } = useQuery({
    queryKey: ["alerts", "firing"],
    queryFn: () => api.get("/api/v1/alerts", { query: { state: "firing", limit: 1000 } }),
    refetchInterval: 15_000,
  });
  const mine = data?.items.filter(({ pipeline }) => pipeline === name) ?? [];
  if (mine.length === 0) return null;
  return (
    <ul className="firing">
      {mine.map(({ id, rule, evidence: why, firedAt }) => (
        <li key={id} className="note bad">
          <Link to={`/alerts?pipeline=${encodeURIComponent(name)}`}>Alert: {rule}</Link> {why}, <Ago at={firedAt} />
        </li>
      ))}
    </ul>
  );
}
