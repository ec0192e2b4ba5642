/** What a comparison of two versions says, sink by sink. */
import type { Operation } from "../api/savepoints";

export interface Sample {
  old: Record<string, unknown> | null;
  new: Record<string, unknown> | null;
}

export interface SinkCompared {
  sink: string;
  how: string;
  reason: string;
  newColumns: string[];
  goneColumns: string[];
  counts: { equal: number; different: number; onlyOld: number; onlyNew: number; samples: Sample[] } | null;
}

const HOW: Record<string, string> = { batches: "by batch", time: "by event time", "new rows": "rows of the new version" };

/** How rows of a sink were told apart, or why they were not compared. */
export function howWords({ how, reason, counts }: SinkCompared): string {
  return counts === null ? `not compared: ${reason}` : (HOW[how] ?? how);
}

export function differs({ counts }: SinkCompared): boolean {
  return counts !== null && counts.different + counts.onlyOld + counts.onlyNew > 0;
}

/** What the newest comparison has found; null if there is none. */
export function newest(operations: readonly Operation[]): { at: string; behind: number; sinks: SinkCompared[] } | null {
  const found = operations.find(({ kind, state }) => kind === "compare" && state === "done");
  if (!found?.endedAt || !Array.isArray(found.result.sinks)) return null;
  const behind = typeof found.result.behind === "number" ? found.result.behind : 0;
  return { at: found.endedAt, behind, sinks: found.result.sinks.filter(isRecord).map(read) };
}

function read(sink: Record<string, unknown>): SinkCompared {
  const counts = isRecord(sink.compared) ? sink.compared : null;
  return {
    sink: String(sink.sink), how: String(sink.how), reason: String(sink.reason ?? ""),
    newColumns: texts(sink.new_columns), goneColumns: texts(sink.gone_columns),
    counts: counts && {
      equal: Number(counts.equal), different: Number(counts.different), onlyOld: Number(counts.only_old), onlyNew: Number(counts.only_new),
      samples: Array.isArray(counts.samples) ? counts.samples.filter(isRecord).map(({ old, new: now }) => ({ old: isRecord(old) ? old : null, new: isRecord(now) ? now : null })) : [],
    },
  };
}

/** A row in words: its columns and what they hold. */
export function rowWords(row: Record<string, unknown>): string {
  return Object.entries(row).map(([name, value]) => `${name}: ${value === null ? "null" : typeof value === "string" ? value : JSON.stringify(value)}`).join(", ");
}

function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.map(String) : [];
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
