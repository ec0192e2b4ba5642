import { expect, test } from "vitest";
import type { Operation } from "../api/savepoints";
import { differs, howWords, newest, rowWords } from "./cutover";

function compared(state: string, result: Record<string, unknown>): Operation {
  return {
    id: "o1", pipeline: "a", kind: "compare", state, asked: {}, askedAt: "2026-03-01T00:00:00Z", askedBy: "ann", begunAt: null, attempts: 1, run: null,
    cancelledBy: null, stage: null, done: null, total: null, endedAt: state === "done" ? "2026-03-01T00:01:00Z" : null, reason: null, owner: null, code: null, result,
  };
}

const SINKS = [
  { sink: "store", how: "time", reason: "", new_columns: ["most"], gone_columns: [], compared: { equal: 9, different: 1, only_old: 0, only_new: 0, samples: [{ old: { id: 1, n: null }, new: { id: 1, n: "2" } }] } },
  { sink: "feed", how: "not compared", reason: "what it has stored cannot be read back", new_columns: [], gone_columns: [], compared: null },
];

test("the newest comparison that is done is told", () => {
  const found = newest([compared("running", {}), compared("done", { behind: 2, sinks: SINKS }), compared("done", { behind: 0, sinks: [] })]);
  expect(found?.behind).toBe(2);
  expect(found?.sinks.map(({ sink }) => sink)).toEqual(["store", "feed"]);
  expect(found?.sinks[0]?.counts).toMatchObject({ equal: 9, different: 1, onlyOld: 0, onlyNew: 0 });
  expect(found?.sinks[0]?.newColumns).toEqual(["most"]);
});

test("without one there is nothing to tell", () => {
  expect(newest([])).toBeNull();
  expect(newest([compared("failed", {}), compared("done", {})])).toBeNull();
});

test("what differs and what was not compared are said", () => {
  const [store, feed] = newest([compared("done", { sinks: SINKS })])?.sinks ?? [];
  if (!store || !feed) throw new Error("both are there");
  expect([differs(store), differs(feed)]).toEqual([true, false]);
  expect(howWords(store)).toBe("by event time");
  expect(howWords(feed)).toBe("not compared: what it has stored cannot be read back");
});

test("a row is written with its columns", () => {
  expect(rowWords({ id: 1, n: null, user: "ann" })).toBe("id: 1, n: null, user: ann");
});
