import { describe, expect, it } from "vitest";
import type { RunStatus } from "../api/types";
import { rateOf, type Sample, withSample } from "./rates";

function status(second: number, rows: number, run = "r1"): RunStatus {
  return { run, at: new Date(second * 1000).toISOString(), rows_in: { views: rows }, rows_out: {} } as unknown as RunStatus;
}

function after(...all: RunStatus[]): readonly Sample[] {
  return all.reduce<readonly Sample[]>(withSample, []);
}

describe("rates of nodes", () => {
  it("are what was counted over the time between", () => {
    expect(rateOf(after(status(0, 0), status(1, 500), status(4, 2000)), "rows_in", "views")).toBe(500);
  });

  it("are not known from one report, nor across two runs", () => {
    expect(rateOf(after(status(0, 9)), "rows_in", "views")).toBeNull();
    expect(rateOf(after(status(0, 900), status(5, 3, "r2")), "rows_in", "views")).toBeNull();
  });

  it("forget what is older than half a minute", () => {
    expect(rateOf(after(status(0, 0), status(40, 100), status(45, 600)), "rows_in", "views")).toBe(100);
  });

  it("are nothing for a node that counts nothing", () => {
    expect(rateOf(after(status(0, 0), status(2, 10)), "rows_out", "store")).toBe(0);
  });

  it("take a report once", () => expect(after(status(1, 5), status(1, 5))).toHaveLength(1));
});
