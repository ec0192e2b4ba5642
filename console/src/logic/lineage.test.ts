import { expect, it } from "vitest";
import type { Schemas } from "../api/client";
import { originOf, sourcesOf } from "./lineage";

function known(name: string, from: string[], columns: string[], lineage: Record<string, string[]> | null = null): Schemas["NodeKnown"] {
  return { name, kind: "step", component: "x", from, columns: columns.map((each) => ({ name: each, type: "string" })), watermark: null, state: [], lineage };
}
const NODES = new Map([
  known("views", [], ["user", "ms"]), known("long", ["views"], ["user", "ms"]),
  known("counts", ["long"], ["user", "seconds", "n"], { user: ["long.user"], seconds: ["long.ms", "long.user"], n: [] }),
  known("store", ["counts"], ["user", "seconds", "n"]),
].map((each) => [each.name, each]));

it("goes back to the sources, also where columns are only passed on", () => {
  const origin = originOf(NODES, "store", "seconds");
  expect(sourcesOf(origin)).toEqual(["views.ms", "views.user"]);
  expect(origin.from[0]?.from.map(({ node, column }) => `${node}.${column}`)).toEqual(["long.ms", "long.user"]);
});

it("ends where a column comes from nothing", () => {
  expect(sourcesOf(originOf(NODES, "counts", "n"))).toEqual(["counts.n"]);
  expect(sourcesOf(originOf(NODES, "views", "ms"))).toEqual(["views.ms"]);
});
