/** Where a column comes from, step by step back to the sources. */
import type { Schemas } from "../api/client";

type Known = Schemas["NodeKnown"];

export interface Origin {
  node: string;
  column: string;
  /** What it is computed from; none in a source, and where nobody knows. */
  from: Origin[];
}

const DEEPEST = 40;

export function originOf(nodes: ReadonlyMap<string, Known>, node: string, column: string, depth = 0): Origin {
  const known = nodes.get(node);
  const written = known?.lineage?.[column];
  const before = written ? written.map(split) : passed(nodes, known, column);
  const from = depth < DEEPEST ? before.map(([name, each]) => originOf(nodes, name, each, depth + 1)) : [];
  return { node, column, from };
}

/** A column that no lineage speaks of is that of an input, if one has it. */
function passed(nodes: ReadonlyMap<string, Known>, known: Known | undefined, column: string): [string, string][] {
  const holders = known?.from.filter((input) => nodes.get(input)?.columns?.some(({ name }) => name === column)) ?? [];
  return holders.map((input) => [input, column]);
}

function split(written: string): [string, string] {
  const dot = written.lastIndexOf(".");
  return [written.slice(0, dot), written.slice(dot + 1)];
}

/** The columns of sources that a column comes from. */
export function sourcesOf(origin: Origin): string[] {
  if (origin.from.length === 0) return [`${origin.node}.${origin.column}`];
  return [...new Set(origin.from.flatMap(sourcesOf))];
}
