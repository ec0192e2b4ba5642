/** What was written and not applied, for as long as the page of the browser stays open; nothing is stored. */
const drafts = new Map<string, string>();

export function draftOf(key: string): string | undefined {
  return drafts.get(key);
}

export function keepDraft(key: string, text: string, initial: string): void {
  if (text === initial) drafts.delete(key);
  else drafts.set(key, text);
}

export function forgetDrafts(): void {
  drafts.clear();
}
