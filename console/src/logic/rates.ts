/** How fast each node is, from what a run has counted at different times. */
import type { RunStatus } from "../api/types";

const WINDOW_MS = 30_000;

export interface Sample {
  at: number;
  status: RunStatus;
}

type Counter = "rows_in" | "rows_out" | "rows_late" | "rows_dead" | "rows_filtered";

/** The samples with a new one; another run counts from the beginning, and what is old is left out. */
export function withSample(samples: readonly Sample[], status: RunStatus): readonly Sample[] {
  const at = Date.parse(status.at);
  const last = samples.at(-1);
  if (last && last.status.run === status.run && last.at >= at) return samples;
  const kept = last?.status.run === status.run ? samples.filter((each) => at - each.at <= WINDOW_MS) : [];
  return [...kept, { at, status }];
}

/** Rows per second of one node; null as long as there is nothing to compare. */
export function rateOf(samples: readonly Sample[], counter: Counter, node: string): number | null {
  const first = samples[0];
  const last = samples.at(-1);
  if (!first || !last || last.at - first.at < 1000) return null;
  const grown = (last.status[counter][node] ?? 0) - (first.status[counter][node] ?? 0);
  return Math.max(0, grown) / ((last.at - first.at) / 1000);
}
