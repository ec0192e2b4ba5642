/** States in words and in the order in which they need somebody, and one sentence of evidence for each pipeline. */
import type { LivePipeline, Pipeline } from "../api/types";
import { ago, count, exact, span } from "./format";

export type Group = "attention" | "catching" | "changing" | "healthy" | "stopped";

interface Meaning {
  group: Group;
  word: string;
  sign: string;
}

const STATES: Record<string, Meaning> = {
  FAILED: { group: "attention", word: "Failed", sign: "✕" },
  STALLED: { group: "attention", word: "Stalled", sign: "▲" },
  BACKING_OFF: { group: "attention", word: "Backing off", sign: "▲" },
  DEGRADED: { group: "attention", word: "Degraded", sign: "▲" },
  CATCHING_UP: { group: "catching", word: "Catching up", sign: "◔" },
  STARTING: { group: "changing", word: "Starting", sign: "◌" },
  STOPPING: { group: "changing", word: "Stopping", sign: "◌" },
  SAVING: { group: "changing", word: "Saving", sign: "◌" },
  RESTORING: { group: "changing", word: "Going back", sign: "◌" },
  RESCALING: { group: "changing", word: "Rescaling", sign: "◌" },
  UPGRADING: { group: "changing", word: "Upgrading", sign: "◌" },
  RUNNING: { group: "healthy", word: "Running", sign: "●" },
  IDLE: { group: "healthy", word: "Idle", sign: "●" },
  STOPPED: { group: "stopped", word: "Stopped", sign: "■" },
};
const ORDER = Object.keys(STATES);

export const GROUPS: readonly { group: Group; words: string }[] = [
  { group: "attention", words: "need attention" },
  { group: "catching", words: "catching up" },
  { group: "changing", words: "changing" },
  { group: "healthy", words: "healthy" },
  { group: "stopped", words: "stopped" },
];

/** A state that a newer server may have is shown as it is, and asks for attention. */
export function meaning(state: string): Meaning {
  return STATES[state] ?? { group: "attention", word: state, sign: "?" };
}

/** Smaller is more urgent. */
export function urgency(state: string): number {
  const place = ORDER.indexOf(state);
  return place < 0 ? 0 : place;
}

/** Seconds that event time is behind, as the run last reported; null without event time or before the first row. */
export function lag(pipeline: LivePipeline): number | null {
  const status = pipeline.status;
  if (!status?.watermark) return null;
  return Math.max(0, (Date.parse(status.at) - status.watermark) / 1000);
}

/** When a batch was last committed; null if this run has not done so. */
export function lastCommit(pipeline: LivePipeline): string | null {
  return pipeline.status?.checkpoint_at ?? pipeline.status?.last_batch?.at ?? null;
}

const STALE_SECONDS = 10;

/** How old the numbers of a pipeline are if they are too old to be called now; a pipeline that does not run has none. */
export function staleFor(pipeline: LivePipeline, now: number): number | null {
  if (!pipeline.status || pipeline.run === null) return null;
  const seconds = (now - Date.parse(pipeline.status.at)) / 1000;
  return seconds > STALE_SECONDS ? seconds : null;
}

/** What stands behind the state: how far behind, how fast, how much waits, since when nothing was committed. */
export function evidence(pipeline: LivePipeline, now: number): string[] {
  const found: string[] = [];
  const behind = lag(pipeline);
  const running = pipeline.run !== null;
  if (running && behind !== null) found.push(`${span(behind)} behind`);
  if (running && pipeline.rowsPerSecond !== null) found.push(`${count(pipeline.rowsPerSecond)} rows/s`);
  if (pipeline.secondsLeft !== null) found.push(`done in about ${span(Math.round(pipeline.secondsLeft))}`);
  const commit = lastCommit(pipeline);
  if (running && commit) found.push(`last commit ${ago(commit, now)}`);
  found.push(...waiting(pipeline));
  return found;
}

function waiting(pipeline: Pipeline): string[] {
  const backlog = pipeline.backlog as Record<string, { amount: number; unit: string }>;
  return Object.entries(backlog)
    .filter(([, { amount }]) => amount > 0)
    .map(([source, { amount, unit }]) => `${exact(amount)} ${amount === 1 ? unit.replace(/s$/, "") : unit} ${amount === 1 ? "waits" : "wait"} at ${source}`);
}
