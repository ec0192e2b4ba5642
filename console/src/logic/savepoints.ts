/** Work on state in words, and two savepoints beside each other. */
import type { Difference, Operation, Pair } from "../api/savepoints";
import { bytes, exact, utc } from "./format";

const WORDS: Record<Operation["kind"], string> = {
  savepoint: "Taking a savepoint", verify: "Verifying a savepoint", restore: "Going back to a savepoint", fork: "Forking from a savepoint",
  rescale: "Dividing the state anew", upgrade: "Carrying the state over to the new version", cutover: "A new version beside it",
  compare: "Comparing it with the new version", takeover: "Letting the new version take over", abandon: "Giving the new version up",
  accept_gap: "Accepting that a sink has lost batches",
};

/** A kind that a newer server may have is told by its name. */
export function operationWords({ kind }: Operation): string {
  return (WORDS as Record<string, string | undefined>)[kind] ?? kind;
}

/** Between 0 and 1; null while nobody knows how much there is to do. */
export function progress({ done, total }: Operation): number | null {
  return done !== null && total !== null && total > 0 ? Math.min(1, done / total) : null;
}

/** What a finished one has found or done, in one sentence. */
export function outcome({ kind, state, reason, result }: Operation): string {
  if (state === "failed") return reason ?? "It failed.";
  const damages = Array.isArray(result.damages) ? result.damages.length : 0;
  if (kind === "verify") return damages > 0 ? `${damages} of its files are damaged.` : `All ${exact(Number(result.files ?? 0))} files are as they were written.`;
  const savepoint = typeof result.savepoint === "string" ? ` ${result.savepoint}` : "";
  if (kind === "savepoint") return `Savepoint${savepoint} is there.`;
  if (kind === "takeover") return `The new version goes on after batch ${exact(Number(result.batch ?? 0))}.`;
  if (kind === "restore") return `It goes on from${savepoint}.`;
  return "Done.";
}

export interface Row {
  what: string;
  before: string;
  after: string;
  changed: boolean;
}

/** All that two savepoints can be compared by, what differs first. */
export function compared(found: Difference): Row[] {
  const row = (what: string, pair: Pair, write: (value: unknown) => string = plain): Row => ({
    what, before: write(pair.before), after: write(pair.after), changed: plain(pair.before) !== plain(pair.after),
  });
  const rows = [
    row("batch", found.batch),
    row("watermark", found.watermark, (value) => (typeof value === "number" ? utc(value) : plain(value))),
    ...Object.entries(found.stateBytes).map(([step, pair]) => row(`state of ${step}`, pair, (value) => (typeof value === "number" ? bytes(value) : plain(value)))),
    ...Object.entries(found.totals).flatMap(([what, nodes]) => Object.entries(nodes).map(([node, pair]) => row(`${what} of ${node}`, pair, (value) => (typeof value === "number" ? exact(value) : plain(value))))),
    ...Object.entries(found.offsets).map(([source, pair]) => row(`position in ${source}`, pair)),
    ...Object.entries(found.versions).map(([what, pair]) => row(what, pair)),
    ...found.spec.map(({ path, before, after }) => row(path, { before, after })),
  ];
  return [...rows.filter(({ changed }) => changed), ...rows.filter(({ changed }) => !changed)];
}

function plain(value: unknown): string {
  if (value === null || value === undefined) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}
