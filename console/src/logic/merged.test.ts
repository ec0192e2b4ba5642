import { expect, it } from "vitest";
import type { LivePipeline, Pipeline, RunStatus } from "../api/types";
import { merged } from "./merged";

const status = { run: "r1" } as RunStatus;
const listed = (name: string, run: string | null = "r1") => ({ name, run, state: "RUNNING" }) as Pipeline;
const live = (name: string, more: Partial<LivePipeline> = {}) => ({ ...listed(name), status, ...more });

it("forgets what is no longer listed, and keeps what runs reported", () => {
  const before = new Map([["gone", live("gone")], ["a", live("a")], ["b", live("b")]]);
  const found = merged([listed("a"), listed("b", "r2")], before, new Map());
  expect([...found.keys()]).toEqual(["a", "b"]);
  expect(found.get("a")?.status).toBe(status);
  expect(found.get("b")?.status).toBeNull();
});

it("believes what was heard meanwhile", () => {
  const heard = new Map([["new", live("new")], ["a", null], ["b", live("b", { state: "STALLED" })]]);
  const found = merged([listed("a"), listed("b")], null, heard);
  expect([...found.keys()].sort()).toEqual(["b", "new"]);
  expect(found.get("b")?.state).toBe("STALLED");
});
