import { describe, expect, it } from "vitest";
import { codeOf, covers, ROLES, safeNext } from "./roles";

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

describe("a link that logs in", () => {
  it.each([["#code=a-b_c", "a-b_c"], ["", ""], ["#", ""], ["#top", ""], ["#x=1&code=a", "a"]])(
    "%s has the code '%s'", (hash, code) => expect(codeOf(hash)).toBe(code),
  );
});
