import { describe, expect, it } from "vitest";
import { path, rates } from "./spark";

const at = (seconds: number) => new Date(seconds * 1000).toISOString();

describe("a small line", () => {
  it("reaches from the lowest to the highest value", () => {
    expect(path([[0, 0], [0.5, 5], [1, 10]], 80, 22).line).toBe("M0.0,21.0L40.0,11.0L80.0,1.0");
  });

  it("is flat at the bottom if nothing came", () => {
    expect(path([[0, 0], [1, 0]], 80, 22).line).toBe("M0.0,21.0L80.0,21.0");
  });
});

describe("rows per second", () => {
  it("are those of each point", () => {
    const points = [10, 20, 30].map((second) => ({ at: at(second), seconds: 10, rowsIn: second }));
    expect(rates(points, 0, 40_000)).toEqual([[0.25, 1], [0.5, 2], [0.75, 3]]);
  });

  it("are none while there were no batches", () => {
    const points = [10, 60].map((second) => ({ at: at(second), seconds: 10, rowsIn: 50 }));
    expect(rates(points, 0, 100_000)).toEqual([[0.1, 5], [0.2, 0], [0.5, 0], [0.6, 5]]);
  });
});
