/** What a plan means: its costs in words, and whether something would be lost. */
import { Refusal } from "../api/client";
import type { Plan } from "../api/types";

interface Cost {
  title: string;
  words: string;
  group: string;
}

const COSTS: Record<string, Cost> = {
  nothing: { title: "Nothing", words: "It goes on as it is.", group: "healthy" },
  restart: { title: "Restart", words: "It stops after its batch and goes on where it was.", group: "changing" },
  rescale: { title: "Rescale", words: "Its state is divided anew, which takes a while; nothing is lost.", group: "catching" },
  bootstrap: { title: "Bootstrap", words: "What it computed before must be computed anew from history.", group: "catching" },
  "loses state": { title: "Loses state", words: "State that it keeps now is no longer of use and is lost.", group: "attention" },
};
const ORDER = Object.keys(COSTS);

/** A cost that a newer server may know is taken for the worst. */
export function costOf(cost: string): Cost {
  return COSTS[cost] ?? { title: cost, words: "", group: "attention" };
}

export function worst(plan: Plan): string {
  return plan.steps.map(({ cost }) => cost).reduce((a, b) => (place(b) > place(a) ? b : a), "nothing");
}

function place(cost: string): number {
  return ORDER.includes(cost) ? ORDER.indexOf(cost) : ORDER.length;
}

/** The nodes whose state is lost, as the server wants them named before it does so. */
export function lost(plan: Plan): string[] {
  return plan.steps.flatMap((step) => step.loses);
}

/** Whether to ask for the name before it is done. */
export function loses(plan: Plan): boolean {
  return lost(plan).length > 0 || place(worst(plan)) >= place("loses state") || plan.steps.some(({ action }) => action === "delete");
}

/** What a server refuses to give up until somebody says that it may be lost. */
export function losses(error: unknown): { node: string; reason: string }[] {
  const found = error instanceof Refusal ? error.problem.problems : [];
  return found.filter(({ code }) => code === "CHANGE_LOSES_STATE").map(({ params }) => ({ node: String(params.node), reason: String(params.reason) }));
}

/** A value of a file in one line. */
export function shown(value: unknown): string {
  if (value === null || value === undefined) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}
