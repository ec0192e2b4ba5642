/** From points of history to the lines of charts. */
import type { Point } from "../api/types";
import { brief, bytes, count, rate } from "./format";

export const RANGES = { "1h": 3600, "6h": 6 * 3600, "1d": 86_400, "7d": 7 * 86_400 } as const;
export type Range = keyof typeof RANGES;

export interface Series {
  label: string;
  values: (number | null)[];
}

export interface ChartData {
  id: string;
  title: string;
  /** Seconds since 1970. */
  times: number[];
  series: Series[];
  write: (value: number | null | undefined) => string;
}

/** All charts of a pipeline; one without any number is left out. */
export function charts(points: readonly Point[]): ChartData[] {
  const times = points.map(({ at }) => Date.parse(at) / 1000);
  const of = (pick: (point: Point) => number | null) => points.map(pick);
  const found: ChartData[] = [
    {
      id: "throughput", title: "Throughput", times, write: rate,
      series: [
        { label: "rows in", values: of((each) => each.rowsIn / each.seconds) },
        { label: "rows out", values: of((each) => each.rowsOut / each.seconds) },
        { label: "late", values: of((each) => each.late / each.seconds) },
        { label: "dead", values: of((each) => each.dead / each.seconds) },
      ].filter(({ label, values }, index) => index < 2 || (label && values.some((value) => value))),
    },
    { id: "lag", title: "Behind", times, write: brief, series: [{ label: "event time behind", values: of(lagOf) }] },
    {
      id: "phases", title: "Batch time and phases", times, write: brief,
      series: [
        { label: "whole batch", values: of((each) => each.durationMs / each.batches / 1000) },
        { label: "longest", values: of((each) => each.longestMs / 1000) },
        ...phases(points),
      ],
    },
    {
      id: "state", title: "State", times, write: bytes, series: [{ label: "bytes of state", values: of((each) => each.stateBytes || null) }],
    },
    { id: "state-rows", title: "State rows", times, write: count, series: [{ label: "rows kept", values: of((each) => each.stateRows || null) }] },
    {
      id: "checkpoint", title: "Checkpoint", times, write: bytes,
      series: [{ label: "size on disk", values: of((each) => each.checkpointBytes) }],
    },
  ];
  return found.filter(({ series }) => series.some(({ values }) => values.some((value) => value !== null)));
}

function lagOf({ at, watermark }: Point): number | null {
  return watermark ? Math.max(0, (Date.parse(at) - watermark) / 1000) : null;
}

const MOST_PHASES = 4;
/** Spark's name for all phases together. */
const WHOLE = "triggerExecution";

/** The phases that take longest, each as a line; those of the last batch of every point. */
function phases(points: readonly Point[]): Series[] {
  const sums = new Map<string, number>();
  for (const { phasesMs } of points) for (const [name, ms] of Object.entries(phasesMs)) if (name !== WHOLE) sums.set(name, (sums.get(name) ?? 0) + ms);
  const names = [...sums].sort(([, a], [, b]) => b - a).slice(0, MOST_PHASES).map(([name]) => name);
  return names.map((name) => ({
    label: name, values: points.map(({ phasesMs, span: batches }) => (name in phasesMs ? (phasesMs[name] ?? 0) / batches / 1000 : null)),
  }));
}

/** What a chart shows, for those who do not see it. */
export function inWords({ title, series, write }: ChartData): string {
  const parts = series.map(({ label, values }) => {
    const known = values.filter((value) => value !== null);
    return `${label} now ${write(known.at(-1))}, between ${write(Math.min(...known))} and ${write(Math.max(...known))}`;
  });
  return `${title}: ${parts.join("; ")}`;
}
