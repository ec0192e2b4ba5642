import { expect, it } from "vitest";
import type { Plan } from "../api/types";
import { Refusal } from "../api/client";
import { costOf, loses, losses, shown, worst } from "./plan";

const plan = (...steps: [string, string][]): Plan =>
  ({ changes: true, checksum: "", steps: steps.map(([action, cost]) => ({ action, cost, name: "a", reason: "", changes: [], flow: [], loses: [], stages: [], warnings: [] })) }) as Plan;

it("finds the worst cost", () => {
  expect(worst(plan(["upgrade", "restart"], ["upgrade", "rescale"], ["unchanged", "nothing"]))).toBe("rescale");
  expect(worst(plan())).toBe("nothing");
});

it("asks before something is lost, and for a cost it does not know", () => {
  expect(loses(plan(["upgrade", "bootstrap"]))).toBe(false);
  expect(loses(plan(["upgrade", "loses state"]))).toBe(true);
  expect(loses(plan(["upgrade", "explodes"]))).toBe(true);
  expect(loses(plan(["delete", "nothing"]))).toBe(true);
});

it("finds what a server refuses to give up", () => {
  const problem = (code: string, node: string) => ({ code, params: { node, reason: "its key is another" }, message: "", hint: "", owner: "author", severity: "error", location: null });
  const refused = new Refusal(422, { code: "CHANGE_LOSES_STATE", type: "", title: "", status: 422, detail: "", instance: "", problems: [problem("CHANGE_LOSES_STATE", "counts"), problem("OTHER", "x")] });
  expect(losses(refused)).toEqual([{ node: "counts", reason: "its key is another" }]);
  expect(losses(new Error("no"))).toEqual([]);
});

it("has words for every cost", () => expect(costOf("restart").words).not.toBe(""));
it("shows values in a line", () => expect([shown("a"), shown(null), shown({ a: [1] })]).toEqual(["a", "–", '{"a":[1]}']));
