import { describe, expect, it } from "vitest";
import { covers, ROLES, safeNext } from "./roles";

describe("roles", () => {
  it("lets each do what those before it may", () => {
    for (const [place, mine] of ROLES.entries()) {
      expect(ROLES.map((needed) => covers(mine, needed))).toEqual(ROLES.map((_, other) => other <= place));
    }
  });
});

describe("where a login leads", () => {
  it.each([
    ["/pipelines/a?x=1", "/pipelines/a?x=1"], [null, "/"], ["https://evil.example.org", "/"],
    ["//evil.example.org", "/"], ["/\\evil.example.org", "/"], ["javascript:alert(1)", "/"], ["/login?next=/a", "/"],
  ])("%s leads to %s", (next, to) => expect(safeNext(next)).toBe(to));
});
