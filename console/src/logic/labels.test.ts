import { expect, it } from "vitest";
import { labelsIn } from "./labels";

it("reads labels", () => {
  expect(labelsIn(" team=news,tier = 1 ")).toEqual({ team: "news", tier: "1" });
  expect(labelsIn("")).toEqual({});
  expect(labelsIn("a=b=c")).toEqual({ a: "b=c" });
});

it("refuses what is none", () => expect([labelsIn("team"), labelsIn("=x")]).toEqual([null, null]));
