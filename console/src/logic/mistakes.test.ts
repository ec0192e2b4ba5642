import { expect, it } from "vitest";
import { Refusal } from "../api/client";
import type { ProblemItem } from "../api/types";
import { mistakesIn, mistakesOf } from "./mistakes";

const item: ProblemItem = {
  code: "X", severity: "error", message: "no such input.", hint: "Did you mean views?", owner: "author", params: {}, location: { line: 7, column: 3 },
};

it("puts mistakes at their lines, and those without a place at the first", () => {
  expect(mistakesIn([item, { ...item, severity: "warning", hint: "", location: null }])).toEqual([
    { line: 7, column: 3, text: "no such input. Did you mean views?", severity: "error" },
    { line: 1, column: 1, text: "no such input.", severity: "warning" },
  ]);
});

it("takes them from answers that refuse the file only", () => {
  const problem = { type: "", title: "", status: 422, detail: "", instance: "", code: "X", problems: [item] };
  expect(mistakesOf(new Refusal(422, problem))).toHaveLength(1);
  expect(mistakesOf(new Refusal(503, problem))).toEqual([]);
  expect(mistakesOf(new Error("x"))).toEqual([]);
});
