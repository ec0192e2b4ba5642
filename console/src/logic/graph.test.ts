import { describe, expect, it } from "vitest";
import type { GraphNode, LivePipeline, Point, RunStatus } from "../api/types";
import { figures as figuresOf, leaving, places, slowest, thickness, type Context } from "./graph";
import { withSample } from "./rates";

function node(name: string, kind: GraphNode["kind"], ...inputs: string[]): GraphNode {
  return { name, kind, component: kind === "step" ? "filter" : "x", inputs, partOf: null, config: {} };
}

const NODES = [node("views", "source"), node("clean", "step", "views"), node("store", "sink", "clean"), node("raw", "sink", "views")];
const AT = Date.parse("2026-03-01T12:00:00Z");

function status(second: number, more: Partial<RunStatus> = {}): RunStatus {
  return {
    run: "r1", at: new Date(AT + second * 1000).toISOString(), rows_in: {}, rows_out: {}, rows_late: {}, rows_dead: {},
    rows_filtered: {}, watermarks: {}, backlog: {}, sink_retries: {}, state_rows: 0, state_bytes: 0, ...more,
  } as RunStatus;
}

const named = (name: string) => NODES.find((each) => each.name === name) as GraphNode;
const first = status(0);
const now = status(2, {
  rows_in: { views: 200 }, rows_out: { store: 100 }, rows_filtered: { clean: 40 }, rows_dead: { views: 3 },
  watermarks: { views: AT }, backlog: { views: { amount: 1500, unit: "rows" } }, sink_retries: { store: 2 },
});
const samples = withSample(withSample([], first), now);
const context = {
  pipeline: { status: now } as LivePipeline, samples,
  last: { sinkMs: { store: 120 }, span: 2, durationMs: 300, batches: 3 } as unknown as Point,
};

describe("places", () => {
  it("put every node right of what it reads", () => {
    const found = places(NODES, false);
    for (const { name, inputs } of NODES) {
      for (const input of inputs) expect(found.get(name)?.x).toBeGreaterThan(found.get(input)?.x ?? Infinity);
    }
  });

  it("go down where there is no room", () => {
    const found = places(NODES, true);
    expect(found.get("store")?.y).toBeGreaterThan(found.get("views")?.y ?? Infinity);
  });

  it("do not overlap", () => {
    const found = [...places(NODES, false).values()].map(({ x, y }) => `${Math.round(x)},${Math.round(y)}`);
    expect(new Set(found).size).toBe(NODES.length);
  });
});

const figures = (node: GraphNode, given: Context) => figuresOf(node, NODES, given);

describe("figures", () => {
  it("tell of a source how far behind it is, what waits and what was set aside", () => {
    expect(figures(named("views"), context)).toMatchObject({ lines: ["1.5 k rows wait", "2.0 s behind"], dead: 3, waits: true, rows: 98.5 });
  });

  it("tell of a sink its time, its share of the batch and its retries", () => {
    expect(figures(named("store"), context)).toMatchObject({ lines: ["60 ms a batch", "tried again 2 times"], share: 0.6, rows: 50 });
  });

  it("tell of a step what it filters", () => expect(figures(named("clean"), context).lines).toEqual(["20/s filtered"]));

  it("claim nothing of a pipeline without a run", () => {
    expect(figures(named("views"), { ...context, pipeline: { status: null } as LivePipeline }).lines).toEqual([]);
  });

  it("mark the slowest", () => expect(slowest(NODES, context)).toBe("store"));
});

describe("edges", () => {
  it("show the rows that come in and go out, and nothing where none are counted", () => {
    expect(leaving(named("views"), NODES, samples)).toBe(98.5);
    expect(leaving(named("clean"), NODES, samples)).toBe(78.5);
    expect(leaving(named("store"), NODES, samples)).toBe(50);
    const counted = { ...node("counted", "step", "clean"), component: "window" };
    expect(leaving(counted, [...NODES, counted], samples)).toBeNull();
    expect(leaving(counted, [counted, { ...named("store"), inputs: ["counted"] }], samples)).toBe(50);
  });

  it("are thicker the more flows, within bounds", () => {
    expect([thickness(null), thickness(0)]).toEqual([1.5, 1.5]);
    expect(thickness(1e4)).toBeGreaterThan(thickness(10));
    expect(thickness(1e12)).toBe(7);
  });
});
