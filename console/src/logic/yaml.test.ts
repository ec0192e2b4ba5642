import { expect, it } from "vitest";
import { asYaml } from "./yaml";

it("writes nested values", () => {
  const value = { from: ["a", "b"], kafka: { topic: "views", port: 9092, on: true }, sql: "SELECT 1\nFROM a\n", none: {}, list: [{ a: 1, b: "x: y" }] };
  expect(asYaml(value)).toBe(
    "from:\n  - a\n  - b\nkafka:\n  topic: views\n  port: 9092\n  \"on\": true\nsql: |\n  SELECT 1\n  FROM a\nnone: {}\nlist:\n  - a: 1\n    b: \"x: y\"");
});

it("quotes what would be read as something else", () => {
  expect([asYaml("true"), asYaml("12"), asYaml("a: b"), asYaml(""), asYaml("5 seconds")]).toEqual(['"true"', '"12"', '"a: b"', '""', '"5 seconds"']);
});
