/** The list itself: only the rows on the screen are there, so that a thousand are as quick as ten. */
import { keepPreviousData, useQueries } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { Link } from "react-router";
import { api, type Schemas } from "../../api/client";
import type { LivePipeline } from "../../api/types";
import { ago, count, plural, rate, span, utc } from "../../logic/format";
import { lag, lastCommit, staleFor } from "../../logic/health";
import { blocks, window as rowsIn } from "../../logic/overview";
import { rates } from "../../logic/spark";
import { Labels, StateBadge } from "../../ui/small";
import { Sparkline } from "../../ui/Sparkline";

const BLOCK = 25;
const TREND_MS = 30_000;
const WIDE = "(min-width: 900px)";
const ROW_WIDE = 60;
const ROW_NARROW = 118;

interface Props {
  pipelines: readonly LivePipeline[];
  now: number;
  alerts: ReadonlyMap<string, number>;
}

export function Rows({ pipelines, now, alerts }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const { from, to, row } = useVisible(box, pipelines.length);
  const trends = useTrends(pipelines, from, to);
  return (
    <div role="table" aria-label="Pipelines" aria-rowcount={pipelines.length + 1} className="rows">
      <div role="rowgroup">
        <div role="row" aria-rowindex={1} className="row head">
          {["State", "Pipeline", "Why", "Behind", "Rows", "Last commit", "Alerts", "Restarts, 1 d"].map((title) => (
            <span key={title} role="columnheader">{title}</span>
          ))}
        </div>
      </div>
      <div role="rowgroup" ref={box} className="body" style={{ height: pipelines.length * row }}>
        {pipelines.slice(from, to).map((pipeline, index) => (
          <Row
            key={pipeline.name} pipeline={pipeline} now={now} trend={trends.get(pipeline.name)}
            alerts={alerts.get(pipeline.name) ?? 0} place={from + index} height={row}
          />
        ))}
      </div>
    </div>
  );
}

interface RowProps {
  pipeline: LivePipeline;
  now: number;
  trend: Trend | undefined;
  alerts: number;
  place: number;
  height: number;
}

function Row({ pipeline, now, trend, alerts, place, height }: RowProps) {
  const behind = lag(pipeline);
  const commit = lastCommit(pipeline);
  const stale = staleFor(pipeline, now);
  const running = pipeline.run !== null;
  return (
    <div role="row" aria-rowindex={place + 2} className="row" style={{ top: place * height, height: height - (height === ROW_NARROW ? 8 : 0) }}>
      <span role="cell" className="c-state"><StateBadge state={pipeline.state} /></span>
      <span role="cell" className="c-name">
        <Link to={`/pipelines/${encodeURIComponent(pipeline.name)}`}>{pipeline.name}</Link>
        <Labels labels={pipeline.labels} />
      </span>
      <span role="cell" className="c-why" title={pipeline.reason}>
        {pipeline.deleting ? "is being deleted" : pipeline.reason}
        {stale !== null && <em className="stale"> · numbers are {span(Math.round(stale))} old</em>}
      </span>
      <span role="cell" className={stale === null ? "c-lag number" : "c-lag number stale"}>{running ? span(behind) : "–"}</span>
      <span role="cell" className="c-rate number">
        {trend && <Sparkline points={trend.rates} label={`Rows per second over the last hour, at most ${count(trend.most)}`} />}
        <span className={stale === null ? "rate" : "rate stale"}>{running ? rate(pipeline.rowsPerSecond) : "–"}</span>
      </span>
      <span role="cell" className="c-commit number" title={commit ? utc(commit) : undefined}>{running ? ago(commit, now) : "–"}</span>
      <span role="cell" className="c-alerts">
        {alerts > 0 && <Link className="badge attention" to={`/alerts?pipeline=${encodeURIComponent(pipeline.name)}`}><span aria-hidden="true">▲</span> {plural(alerts, "alert")}</Link>}
      </span>
      <span role="cell" className="c-restarts number">{trend?.restarts ? trend.restarts : ""}</span>
    </div>
  );
}

function useVisible(box: React.RefObject<HTMLDivElement | null>, total: number): { from: number; to: number; row: number } {
  const [seen, setSeen] = useState({ scroll: 0, height: innerHeight, row: matchMedia(WIDE).matches ? ROW_WIDE : ROW_NARROW });
  useEffect(() => {
    const look = () => {
      const top = box.current?.getBoundingClientRect().top ?? 0;
      setSeen({ scroll: -top, height: innerHeight, row: matchMedia(WIDE).matches ? ROW_WIDE : ROW_NARROW });
    };
    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => {
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [box]);
  const [from, to] = rowsIn(seen.scroll, seen.height, seen.row, total);
  return { from, to, row: seen.row };
}

interface Trend {
  rates: [number, number][];
  most: number;
  restarts: number;
}

/** The last hour of the rows on the screen, block by block; asked for again now and then. */
function useTrends(pipelines: readonly LivePipeline[], from: number, to: number): ReadonlyMap<string, Trend> {
  const answers = useQueries({
    queries: blocks(from, to, BLOCK).map((block) => {
      const names = pipelines.slice(block * BLOCK, (block + 1) * BLOCK).map(({ name }) => name).sort();
      return {
        queryKey: ["trends", ...names],
        queryFn: () => api.get("/api/v1/trends", { query: { pipeline: names } }),
        refetchInterval: TREND_MS,
        staleTime: TREND_MS,
        placeholderData: keepPreviousData,
      };
    }),
    combine: (results) => results.map(({ data }) => data),
  });
  return useMemo(() => new Map(answers.flatMap((answer) => (answer ? trendsIn(answer) : []))), [answers]);
}

function trendsIn(answer: Schemas["BriefTrends"]): [string, Trend][] {
  const since = Date.parse(answer.since);
  const until = Date.parse(answer.until);
  return answer.items.map(({ pipeline, points, restarts }) => {
    const drawn = rates(points, since, until);
    return [pipeline, { rates: drawn, most: Math.max(0, ...drawn.map(([, value]) => value)), restarts }];
  });
}
