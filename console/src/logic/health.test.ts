import { describe, expect, it } from "vitest";
import type { LivePipeline, RunStatus } from "../api/types";
import { evidence, GROUPS, lag, meaning, staleFor, urgency } from "./health";

const NOW = Date.parse("2026-03-01T12:00:00Z");

const STATUS: RunStatus = {
  run: "r1", phase: "running", at: "2026-03-01T12:00:00Z", started_at: null, batches: 3, rows_in: {}, rows_out: {},
  rows_late: {}, rows_dead: {}, rows_filtered: {}, rows_per_second: 12_100, watermarks: {},
  watermark: NOW - 900, backlog: {}, caught_up_in: {}, last_batch: null, state_rows: 0, state_bytes: 0,
  checkpoint_bytes: null, checkpoint_at: "2026-03-01T11:59:48Z", disk_free: null, sink_retries: {},
};

function pipeline(more: Partial<LivePipeline> = {}): LivePipeline {
  return {
    name: "a", labels: {}, desired: "running", generation: 1, observedGeneration: 1, revision: 1, version: 1,
    target: "local", state: "RUNNING", reason: "", since: "", deleting: false, watermark: STATUS.watermark, rowsIn: 0,
    rowsOut: 0, rowsLate: 0, rowsDead: 0, rowsFiltered: 0, rowsPerSecond: 12_100, backlog: {}, secondsLeft: null, operations: [],
    run: "r1", createdAt: "", updatedAt: "", status: STATUS, ...more,
  };
}

describe("states", () => {
  it("puts what needs somebody first", () => {
    const states = ["STOPPED", "RUNNING", "CATCHING_UP", "FAILED", "STALLED", "IDLE"];
    expect(states.sort((a, b) => urgency(a) - urgency(b))).toEqual(
      ["FAILED", "STALLED", "CATCHING_UP", "RUNNING", "IDLE", "STOPPED"]);
  });

  it("shows a state it does not know, and asks to look at it", () => {
    expect(meaning("DREAMING")).toMatchObject({ word: "DREAMING", group: "attention" });
  });

  it("has words for every group", () => {
    expect(new Set(GROUPS.map(({ words }) => words)).size).toBe(GROUPS.length);
  });
});

describe("evidence", () => {
  it("says how far behind, how fast and when it last committed", () => {
    expect(evidence(pipeline(), NOW)).toEqual(["0.9 s behind", "12.1 k rows/s", "last commit 12 s ago"]);
  });

  it("says what waits and until when", () => {
    const found = evidence(pipeline({ secondsLeft: 181.4, backlog: { views: { amount: 1200, unit: "rows" }, b: { amount: 0, unit: "rows" } } }), NOW);
    expect(found).toContain("done in about 3 min 1 s");
    expect(found).toContain("1,200 rows wait at views");
    expect(found.join()).not.toContain("wait at b");
  });

  it("claims nothing of a pipeline that does not run", () => {
    expect(evidence(pipeline({ run: null, status: null, rowsPerSecond: null }), NOW)).toEqual([]);
  });
});

describe("numbers of a run", () => {
  it("has no lag before the first row or without event time", () => {
    expect(lag(pipeline({ status: { ...STATUS, watermark: 0 } }))).toBeNull();
    expect(lag(pipeline({ status: { ...STATUS, watermark: null } }))).toBeNull();
    expect(lag(pipeline())).toBeCloseTo(0.9);
  });

  it("calls them stale after ten seconds without a report", () => {
    expect(staleFor(pipeline(), NOW + 9000)).toBeNull();
    expect(staleFor(pipeline(), NOW + 60_000)).toBe(60);
    expect(staleFor(pipeline({ run: null }), NOW + 60_000)).toBeNull();
  });
});
