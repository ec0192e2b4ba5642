import { describe, expect, it } from "vitest";
import { brief, ago, bytes, clock, count, plural, rate, span, utc } from "./format";

describe("numbers", () => {
  it.each([
    [0, "0"], [7, "7"], [0.4, "0.4"], [950, "950"], [999.7, "1.0 k"], [12_100, "12.1 k"], [999_960, "1.0 M"],
    [123_456, "123 k"], [3_400_000, "3.4 M"], [-1500, "−1.5 k"],
  ])("writes %d as %s", (value, text) => expect(count(value)).toBe(text));

  it("shows what is not known as a dash", () => {
    expect([count(null), rate(undefined), bytes(null), span(null), ago(null, 0)]).toEqual(["–", "–", "–", "–", "–"]);
  });

  it("writes bytes in their units", () => expect(bytes(1_240_000_000)).toBe("1.2 GB"));
  it("counts things", () => expect([plural(1, "row"), plural(1200, "row")]).toEqual(["1 row", "1,200 rows"]));
});

describe("times", () => {
  it.each([
    [0.84, "0.8 s"], [42, "42 s"], [60, "1 min"], [250, "4 min 10 s"], [3600 * 3 + 125, "3 h 2 min"],
    [86_400 * 2 + 5 * 3600, "2 d 5 h"], [86_400, "1 d"], [86_400 + 59, "1 d"], [-3, "0.0 s"],
  ])("writes %d seconds as %s", (seconds, text) => expect(span(seconds)).toBe(text));

  it("tells how long ago something was", () => {
    const now = Date.parse("2026-03-01T12:00:00Z");
    expect(ago("2026-03-01T11:59:59Z", now)).toBe("now");
    expect(ago("2026-03-01T11:59:48Z", now)).toBe("12 s ago");
    expect(ago("2026-02-27T11:00:00Z", now)).toBe("2 d ago");
    expect(ago("2026-03-01T14:00:00Z", now)).toBe("in 2 h");
  });

  it("says UTC in full", () => expect(utc("2026-03-01T13:00:00.123+01:00")).toBe("2026-03-01 12:00:00 UTC"));

  it("names the day only if it is not today", () => {
    const now = new Date(2026, 2, 1, 12).getTime();
    expect(clock(new Date(2026, 2, 1, 9, 5, 7).getTime(), now)).toBe("09:05:07");
    expect(clock(new Date(2026, 1, 28, 9, 5, 7).getTime(), now)).toBe("28 Feb 2026 09:05:07");
  });

  it("shows what is no time as it is", () => expect(utc("soon")).toBe("soon"));
});

describe("brief", () => {
  it("tells short times in milliseconds", () => {
    expect([0.0004, 0.041, 0.9999, 1.25, 250, 0, null].map(brief)).toEqual(["1 ms", "41 ms", "1.0 s", "1.3 s", "4 min 10 s", "0 s", "–"]);
  });
});
