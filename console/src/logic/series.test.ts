import { describe, expect, it } from "vitest";
import type { Point } from "../api/types";
import { charts, inWords } from "./series";

function point(second: number, more: Partial<Point> = {}): Point {
  return {
    at: new Date(second * 1000).toISOString(), seconds: 10, batches: 5, rowsIn: 100, rowsOut: 80, late: 0, dead: 0, filtered: 0,
    durationMs: 500, longestMs: 200, unbalanced: 0, watermark: null, stateRows: null, stateBytes: null, checkpointBytes: null,
    phasesMs: {}, sinkMs: {}, span: 1, ...more,
  };
}
const chart = (points: Point[], id: string) => charts(points).find((each) => each.id === id);

describe("charts", () => {
  it("show rows per second, and late and dead ones only if there are any", () => {
    expect(chart([point(10)], "throughput")?.series.map(({ label }) => label)).toEqual(["rows in", "rows out"]);
    const found = chart([point(10), point(20, { dead: 5 })], "throughput");
    expect(found?.series.at(-1)).toEqual({ label: "dead", values: [0, 0.5] });
    expect(found?.times).toEqual([10, 20]);
  });

  it("show how far event time was behind, when there was a watermark", () => {
    expect(chart([point(10), point(20, { watermark: 0 })], "lag")).toBeUndefined();
    expect(chart([point(10, { watermark: 4000 }), point(20)], "lag")?.series[0]?.values).toEqual([6, null]);
  });

  it("show the mean and the longest batch", () => {
    expect(chart([point(10)], "phases")?.series.map(({ values }) => values)).toEqual([[0.1], [0.2]]);
  });

  it("show the longest phases of one batch, also where history was thinned", () => {
    const found = chart([point(10, { phasesMs: { addBatch: 400, walCommit: 20 }, span: 2 }), point(20, { phasesMs: { addBatch: 90 } })], "phases");
    expect(found?.series.slice(2)).toEqual([{ label: "addBatch", values: [0.2, 0.09] }, { label: "walCommit", values: [0.01, null] }]);
  });

  it("leave out what is not known", () => expect(charts([point(10)]).map(({ id }) => id)).toEqual(["throughput", "phases"]));

  it("are told in words", () => {
    const found = chart([point(10), point(20, { rowsIn: 300 })], "throughput");
    expect(found && inWords(found)).toContain("rows in now 30/s, between 10/s and 30/s");
  });
});
