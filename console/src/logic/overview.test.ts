import { describe, expect, it } from "vitest";
import type { LivePipeline } from "../api/types";
import { blocks, countGroups, labelsOf, matching, sorted, wantedFrom, window } from "./overview";

function pipeline(name: string, more: Partial<LivePipeline> = {}): LivePipeline {
  return {
    name, labels: {}, target: "local", state: "RUNNING", reason: "", rowsPerSecond: null, status: null,
    since: "2026-01-01T00:00:00Z", updatedAt: "2026-01-01T00:00:00Z", ...more,
  } as LivePipeline;
}

const ALL = [
  pipeline("orders", { labels: { team: "shop" }, rowsPerSecond: 5 }),
  pipeline("views", { labels: { team: "news" }, state: "STALLED", reason: "no batch for 6 min" }),
  pipeline("archive", { labels: { team: "news" }, state: "STOPPED" }),
  pipeline("clicks", { labels: { team: "news" }, rowsPerSecond: 9 }),
];
const names = (found: LivePipeline[]) => found.map(({ name }) => name);
const wanted = (query: string) => wantedFrom(new URLSearchParams(query));

describe("the overview", () => {
  it("shows the urgent first, then by name", () => {
    expect(names(sorted(ALL, "urgency"))).toEqual(["views", "clicks", "orders", "archive"]);
  });

  it("sorts by name and by rows, those without a number last", () => {
    expect(names(sorted(ALL, "name"))).toEqual(["archive", "clicks", "orders", "views"]);
    expect(names(sorted(ALL, "rate"))).toEqual(["clicks", "orders", "archive", "views"]);
  });

  it("finds words in names, labels, states and reasons, all of them", () => {
    expect(names(matching(ALL, wanted("q=6+min")))).toEqual(["views"]);
    expect(names(matching(ALL, wanted("q=team=news+stopped")))).toEqual(["archive"]);
    expect(names(matching(ALL, wanted("q=nothing")))).toEqual([]);
  });

  it("filters by label", () => expect(names(matching(ALL, wanted("label=team=shop")))).toEqual(["orders"]));

  it("counts groups", () => {
    expect(countGroups(ALL)).toEqual({ attention: 1, catching: 0, changing: 0, healthy: 2, stopped: 1 });
  });

  it("lists labels once", () => expect(labelsOf(ALL)).toEqual(["team=news", "team=shop"]));

  it("takes no order it does not know", () => expect(wanted("sort=constructor").sort).toBe("urgency"));
});

describe("rows on the screen", () => {
  it.each([
    [0, 500, 50, 1000, [0, 16]], [5000, 500, 50, 1000, [94, 116]], [49_900, 500, 50, 1000, [992, 1000]],
    [0, 500, 50, 3, [0, 3]], [-80, 500, 50, 1000, [0, 16]], [9000, 500, 50, 10, [10, 10]],
  ] as const)("at %d of %d px", (scroll, height, row, total, range) => {
    expect(window(scroll, height, row, total)).toEqual(range);
  });

  it("are asked for in blocks", () => {
    expect(blocks(0, 16, 25)).toEqual([0]);
    expect(blocks(20, 60, 25)).toEqual([0, 1, 2]);
    expect(blocks(25, 25, 25)).toEqual([]);
  });
});
