import { expect, it } from "vitest";
import type { LogLine } from "../api/types";
import { extended, MOST_LINES } from "./logs";

const line = (number: number, run = "r1"): LogLine => ({ run, position: `a.${number}`, text: `line ${number}` }) as LogLine;
const numbers = (lines: LogLine[]) => lines.map(({ position }) => position);

it("takes each line once, also when a stream begins again", () => {
  const before = extended([], [line(1), line(2)]);
  expect(numbers(extended(before, [line(2), line(3)]))).toEqual(["a.1", "a.2", "a.3"]);
});

it("tells lines of two runs apart", () => {
  expect(extended([line(1)], [line(1, "r2")])).toHaveLength(2);
});

it("keeps the newest only", () => {
  const many = Array.from({ length: MOST_LINES + 10 }, (_, index) => line(index));
  expect(extended([], many)[0]?.position).toBe("a.10");
});
