import { expect, it } from "vitest";
import type { Operation } from "../api/savepoints";
import { compared, operationWords, outcome, progress } from "./savepoints";

const ASKED: Operation = {
  id: "o1", pipeline: "a", kind: "verify", state: "done", askedAt: "", askedBy: "", stage: null, done: 5, total: 20, endedAt: null, reason: null, result: {},
  asked: {}, attempts: 1, begunAt: null, cancelledBy: null, code: null, owner: null, run: null,
};

it("tells how far work on state is", () => {
  expect(progress(ASKED)).toBe(0.25);
  expect(progress({ ...ASKED, total: null })).toBeNull();
  expect(operationWords({ ...ASKED, kind: "melt" as never })).toBe("melt");
});

it("tells how it ended", () => {
  expect(outcome({ ...ASKED, result: { files: 12, damages: [] } })).toBe("All 12 files are as they were written.");
  expect(outcome({ ...ASKED, result: { files: 12, damages: [{}] } })).toBe("1 of its files are damaged.");
  expect(outcome({ ...ASKED, state: "failed", reason: "no room" })).toBe("no room");
  expect(outcome({ ...ASKED, kind: "savepoint", result: { savepoint: "s1" } })).toBe("Savepoint s1 is there.");
});

it("puts what differs first", () => {
  const rows = compared({
    sameLineage: true, batch: { before: 4, after: 4 }, watermark: { before: 0, after: 60_000 }, offsets: {}, versions: {},
    stateBytes: { counts: { before: 1000, after: 2500 } }, totals: { in: { views: { before: 10, after: 10 } } }, spec: [],
  });
  expect(rows.map(({ what, before, after }) => [what, before, after])).toEqual([
    ["watermark", "1970-01-01 00:00:00 UTC", "1970-01-01 00:01:00 UTC"], ["state of counts", "1.0 kB", "2.5 kB"],
    ["batch", "4", "4"], ["in of views", "10", "10"],
  ]);
});
