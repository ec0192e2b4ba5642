/** The graph as it is drawn: places of nodes, and the live figures on nodes and edges. */
import { Graph as Dagre, layout } from "@dagrejs/dagre";
import type { GraphNode, LivePipeline, Point } from "../api/types";
import { bytes, count, rate, span } from "./format";
import { rateOf, type Sample } from "./rates";

export const NODE_WIDTH = 216;
export const NODE_HEIGHT = 86;

export interface Placed {
  x: number;
  y: number;
}

/** From left to right, or from top to bottom where there is no room. */
export function places(
  nodes: readonly GraphNode[], down: boolean, { width, height, apart } = { width: NODE_WIDTH, height: NODE_HEIGHT, apart: down ? 52 : 96 },
): Map<string, Placed> {
  const drawn = new Dagre();
  drawn.setGraph({ rankdir: down ? "TB" : "LR", nodesep: 26, ranksep: apart, marginx: 8, marginy: 8 });
  drawn.setDefaultEdgeLabel(() => ({}));
  for (const { name } of nodes) drawn.setNode(name, { width, height });
  for (const { name, inputs } of nodes) for (const input of inputs) drawn.setEdge(input, name);
  layout(drawn);
  return new Map(nodes.map(({ name }) => {
    const { x, y } = drawn.node(name) as Placed;
    return [name, { x: x - width / 2, y: y - height / 2 }];
  }));
}

export interface Context {
  pipeline: LivePipeline;
  samples: readonly Sample[];
  last: Point | null;
}

export interface Figures {
  /** Rows per second that leave it, or that a sink stores; null where they are not counted. */
  rows: number | null;
  /** One or two short facts below the name. */
  lines: string[];
  late: number;
  dead: number;
  /** What part of the time of a batch it takes, if that is known. */
  share: number | null;
  /** Whether rows wait before it. */
  waits: boolean;
}

/** What is known of a node now. Steps run inside one query, so rows are counted where they come in, leave and are dropped. */
export function figures(node: GraphNode, nodes: readonly GraphNode[], { pipeline, samples, last }: Context): Figures {
  const status = pipeline.status;
  const found: Figures = {
    rows: null, lines: [], late: status?.rows_late[node.name] ?? 0, dead: status?.rows_dead[node.name] ?? 0, share: null, waits: false,
  };
  if (!status) return found;
  found.rows = leaving(node, nodes, samples);
  if (node.kind === "source") {
    const mark = status.watermarks[node.name];
    if (mark) found.lines.push(`${span((Date.parse(status.at) - mark) / 1000)} behind`);
    const waits = status.backlog[node.name];
    if (waits && waits.amount > NOTICED_SECONDS * Math.max(1, found.rows ?? 0)) {
      found.waits = true;
      found.lines.unshift(`${count(waits.amount)} ${waits.unit} wait`);
    }
  } else if (node.kind === "sink") {
    const took = last?.sinkMs[node.name];
    if (last && took !== undefined) {
      found.lines.push(`${millis(took / last.span)} a batch`);
      found.share = last.durationMs > 0 ? Math.min(1, took / last.span / (last.durationMs / last.batches)) : null;
    }
    const retries = status.sink_retries[node.name];
    if (retries) found.lines.push(`tried again ${retries} times`);
  } else {
    const filtered = rateOf(samples, "rows_filtered", node.name);
    if (filtered) found.lines.push(`${rate(filtered)} filtered`);
  }
  return found;
}

/** Rows that come in so many seconds are always on their way. */
const NOTICED_SECONDS = 5;

function millis(value: number): string {
  return value < 1000 ? `${Math.round(value)} ms` : span(value / 1000);
}

/** Steps that give as many rows as they get, less those they are counted to drop. */
const PASSING = new Set(["filter", "select", "union", "expect"]);

/** Rows per second that leave a node; null where that is not counted. A sink's are those it stores. */
export function leaving(node: GraphNode, nodes: readonly GraphNode[], samples: readonly Sample[]): number | null {
  if (node.kind === "sink") return rateOf(samples, "rows_out", node.name);
  if (node.kind === "source") {
    const came = rateOf(samples, "rows_in", node.name);
    return came === null ? null : Math.max(0, came - (rateOf(samples, "rows_dead", node.name) ?? 0));
  }
  if (PASSING.has(node.component)) {
    const given = node.inputs.map((input) => {
      const from = nodes.find(({ name }) => name === input);
      return from ? leaving(from, nodes, samples) : null;
    });
    const dropped = (rateOf(samples, "rows_filtered", node.name) ?? 0) + (rateOf(samples, "rows_dead", node.name) ?? 0);
    return given.includes(null) ? null : Math.max(0, given.reduce<number>((sum, each) => sum + (each ?? 0), 0) - dropped);
  }
  const sink = nodes.find(({ kind, inputs }) => kind === "sink" && inputs.includes(node.name));
  return sink ? rateOf(samples, "rows_out", sink.name) : null;
}

/** Between 1.5 and 7 pixels, ten times as many rows being one and a half pixels more. */
export function thickness(rowsPerSecond: number | null): number {
  return rowsPerSecond === null || rowsPerSecond <= 0 ? 1.5 : Math.min(7, 1.5 + 1.1 * Math.log10(1 + rowsPerSecond));
}

/** The node that takes the largest part of the time, if it is most of it. */
export function slowest(nodes: readonly GraphNode[], context: Context): string | null {
  let found: [string, number] | null = null;
  for (const node of nodes) {
    const { share } = figures(node, nodes, context);
    if (share !== null && share >= 0.5 && share > (found?.[1] ?? 0)) found = [node.name, share];
  }
  return found?.[0] ?? null;
}

/** State of the whole pipeline in words; it is not counted by node. */
export function stateWords({ status }: LivePipeline): string | null {
  return status && status.state_rows > 0 ? `${count(status.state_rows)} rows, ${bytes(status.state_bytes)} of state` : null;
}
