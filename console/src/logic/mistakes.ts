/** Mistakes that the server finds in a file, each at its line. */
import { Refusal } from "../api/client";
import type { ProblemItem } from "../api/types";

export interface Mistake {
  line: number;
  column: number;
  text: string;
  severity: "error" | "warning";
}

export function mistakesIn(items: readonly ProblemItem[]): Mistake[] {
  return items.map(({ message, hint, severity, location }) => ({
    line: number(location?.line), column: number(location?.column),
    text: hint ? `${message} ${hint}` : message, severity: severity === "warning" ? "warning" : "error",
  }));
}

/** Those of an answer that refuses the file; none if it was refused for another reason. */
export function mistakesOf(error: unknown): Mistake[] {
  return error instanceof Refusal && error.status === 422 ? mistakesIn(error.problem.problems) : [];
}

function number(value: unknown): number {
  return typeof value === "number" && value > 0 ? value : 1;
}
