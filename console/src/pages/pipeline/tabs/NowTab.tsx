/** The pipeline as it is now and was lately: graph, timeline, charts. */
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";
import { useSearchParams } from "react-router";
import { api, serverNow } from "../../../api/client";
import type { LivePipeline } from "../../../api/types";
import { type Sample, withSample } from "../../../logic/rates";
import { type Range, RANGES } from "../../../logic/series";
import { Loading, Refused } from "../../../ui/states";
import { Timeline } from "./Timeline";

const GraphView = lazy(() => import("../graph/GraphView"));
const Charts = lazy(() => import("../charts/Charts"));

const REFRESH: Record<Range, number> = { "1h": 5000, "6h": 15_000, "1d": 60_000, "7d": 300_000 };

export function NowTab({ pipeline }: { pipeline: LivePipeline }) {
  const [query, setQuery] = useSearchParams();
  const asked = query.get("range") ?? "";
  const range: Range = Object.hasOwn(RANGES, asked) ? (asked as Range) : "1h";
  const { name } = pipeline;
  const trend = useQuery({
    queryKey: ["trend", name, range],
    queryFn: () => api.get("/api/v1/pipelines/{name}/trend", { path: { name }, query: { since: since(range), points: 240 } }),
    refetchInterval: REFRESH[range],
    placeholderData: keepPreviousData,
  });
  const graph = useQuery({
    queryKey: ["graph", name, pipeline.version],
    queryFn: () => api.get("/api/v1/pipelines/{name}/graph", { path: { name } }),
    staleTime: Infinity,
  });
  const samples = useSamples(pipeline);
  const last = trend.data?.points.at(-1) ?? null;
  return (
    <>
      <section aria-label="Graph" className="card graph-card">
        <Suspense fallback={<Loading what="the graph" />}>
          {graph.data
            ? <GraphView nodes={graph.data.nodes} context={{ pipeline, samples, last }} />
            : graph.error ? <Refused error={graph.error} again={() => void graph.refetch()} /> : <Loading what="the graph" />}
        </Suspense>
      </section>
      <div className="section-head">
        <h2>What happened</h2>
        <div className="ranges" role="group" aria-label="Time shown">
          {Object.keys(RANGES).map((each) => (
            <button key={each} type="button" aria-pressed={each === range} onClick={() => setQuery(each === "1h" ? {} : { range: each }, { replace: true })}>{each}</button>
          ))}
        </div>
      </div>
      <Timeline name={name} seconds={RANGES[range]} />
      {trend.error && !trend.data ? <Refused error={trend.error} again={() => void trend.refetch()} /> : (
        <Suspense fallback={<Loading what="charts" />}>
          {trend.data ? <Charts points={trend.data.points} from={Date.parse(trend.data.since)} to={Date.parse(trend.data.until)} /> : <Loading what="charts" />}
        </Suspense>
      )}
    </>
  );
}

function since(range: Range): string {
  return new Date(serverNow() - RANGES[range] * 1000).toISOString();
}

function useSamples({ status }: LivePipeline): readonly Sample[] {
  const [samples, setSamples] = useState<readonly Sample[]>([]);
  const next = status ? withSample(samples, status) : [];
  if (next !== samples && (status || samples.length > 0)) setSamples(next);
  return samples;
}
