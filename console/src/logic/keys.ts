/** Keys: one letter, or `g` and a letter within a second. Typing in a field is typing. */

export const HELP: readonly (readonly [string, string])[] = [
  ["/", "Search pipelines"],
  ["g p", "Pipelines"],
  ["g a", "Alerts"],
  ["g e", "Events"],
  ["g t", "Targets"],
  ["n", "New pipeline"],
  ["e", "Edit this pipeline"],
  ["l", "Logs of this pipeline"],
  ["?", "This list"],
];

export interface KeyState {
  prefix: number | null;
}

const PATIENCE_MS = 1000;

/** What was pressed, as `HELP` names it; null if it is no command, or the beginning of one. */
export function pressed(state: KeyState, key: string, now: number): string | null {
  const after = state.prefix !== null && now - state.prefix < PATIENCE_MS;
  state.prefix = !after && key === "g" ? now : null;
  const command = after ? `g ${key}` : key;
  return HELP.some(([each]) => each === command) ? command : null;
}
