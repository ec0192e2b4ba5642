/** Lines of a log as they come: none twice, the newest so many. */
import type { LogLine } from "../api/types";

export const LEVELS = ["debug", "info", "warning", "error"] as const;
export type Level = (typeof LEVELS)[number];
export const MOST_LINES = 5000;

export function keyOf({ run, position }: LogLine): string {
  return `${run}:${position}`;
}

/** With further lines after those that are there; what is known already comes from a stream that was opened again. */
export function extended(lines: readonly LogLine[], further: readonly LogLine[]): LogLine[] {
  const known = new Set(lines.slice(-further.length - 500).map(keyOf));
  const fresh = further.filter((line) => !known.has(keyOf(line)));
  return [...lines, ...fresh].slice(-MOST_LINES);
}
