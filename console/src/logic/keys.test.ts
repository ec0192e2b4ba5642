import { expect, it } from "vitest";
import { type KeyState, pressed } from "./keys";

it("knows letters, and letters after g", () => {
  const state: KeyState = { prefix: null };
  expect(pressed(state, "/", 0)).toBe("/");
  expect(pressed(state, "g", 0)).toBeNull();
  expect(pressed(state, "p", 500)).toBe("g p");
  expect(pressed(state, "p", 600)).toBeNull();
  expect(pressed(state, "g", 1000)).toBeNull();
  expect(pressed(state, "a", 2500)).toBeNull();
  expect(pressed(state, "e", 2600)).toBe("e");
  expect(pressed(state, "g", 3000)).toBeNull();
  expect(pressed(state, "e", 3100)).toBe("g e");
});
