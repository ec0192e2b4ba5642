import { expect, it } from "vitest";
import type { Event } from "../api/types";
import { marks, tone } from "./timeline";

const event = (second: number, kind: string, text = "", data = {}): Event =>
  ({ id: second, at: new Date(second * 1000).toISOString(), kind, text, data, pipeline: "a", run: null });

it("puts events on the line, close ones together under the worst of them", () => {
  const found = marks([event(90, "state", "RUNNING → STALLED: x"), event(10, "start"), event(10.5, "run_ended", "", { outcome: "died" }), event(500, "start")], 0, 100_000);
  expect(found.map(({ place, events, tone }) => [place, events.length, tone])).toEqual([[0.1, 2, "bad"], [0.9, 1, "bad"]]);
});

it("tells changes by people from what goes wrong", () => {
  expect(tone(event(1, "pipeline.upgrade"))).toBe("change");
  expect(tone(event(1, "run_ended", "", { outcome: "stopped" }))).toBe("plain");
  expect(tone(event(1, "state", "STARTING → RUNNING: it advances"))).toBe("plain");
  expect(tone(event(1, "alert"))).toBe("bad");
});
