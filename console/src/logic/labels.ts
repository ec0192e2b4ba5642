/** Labels as people type them: `team=news, tier=1`. */

export function labelsIn(text: string): Record<string, string> | null {
  const found: Record<string, string> = {};
  for (const part of text.split(",").map((each) => each.trim()).filter(Boolean)) {
    const place = part.indexOf("=");
    if (place < 1) return null;
    found[part.slice(0, place).trim()] = part.slice(place + 1).trim();
  }
  return found;
}
