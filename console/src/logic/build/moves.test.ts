import { expect, it } from "vitest";
import { begun, type Move, moves } from "./moves";

function after(...done: Move[]) {
  return done.reduce(moves, begun("a"));
}
const write = (text: string, now: number): Move => ({ do: "write", text, now });

it("goes back and forth", () => {
  const past = after(write("b", 1000), write("c", 5000), { do: "undo" });
  expect([past.text, past.before, past.after]).toEqual(["b", ["a"], ["c"]]);
  expect(moves(past, { do: "redo" }).text).toBe("c");
  expect(moves(moves(past, { do: "undo" }), { do: "undo" }).text).toBe("a");
});

it("takes letters typed in one go as one", () => {
  expect(after(write("ab", 1000), write("abc", 1200), write("abcd", 1400)).before).toEqual(["a"]);
});

it("takes what is more than a letter for itself, however soon it comes", () => {
  expect(after(write("a: long", 1000), write("a: long enough", 1100)).before).toEqual(["a", "a: long"]);
});

it("forgets what was undone when something else is written", () => {
  expect(after(write("b", 1000), { do: "undo" }, write("c", 9000))).toMatchObject({ text: "c", before: ["a"], after: [] });
});

it("takes changes one after another, each of what the one before has left", () => {
  expect(after(write("b", 1000), { do: "write", text: (before) => `${before}c`, now: 9000 }, { do: "write", text: (before) => `${before}d`, now: 19_000 }).text).toBe("bcd");
});
