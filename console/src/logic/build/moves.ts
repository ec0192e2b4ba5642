/** A text with what it was before and after, for undoing. Letters typed in one go are one move. */

export interface Past {
  text: string;
  before: readonly string[];
  after: readonly string[];
  at: number;
}

export type Move = { do: "write"; text: string | ((before: string) => string); now?: number } | { do: "undo" } | { do: "redo" };

const MOST = 200;
const ONE_GO_MS = 700;
/** A bracket comes with its other half. */
const LETTER = 2;

export function begun(text: string): Past {
  return { text, before: [], after: [], at: 0 };
}

export function moves(past: Past, move: Move): Past {
  if (move.do === "write") {
    const text = typeof move.text === "string" ? move.text : move.text(past.text);
    if (text === past.text) return past;
    const now = move.now ?? Date.now();
    const letter = Math.abs(text.length - past.text.length) <= LETTER;
    const going = letter && now - past.at < ONE_GO_MS && past.before.length > 0 && past.after.length === 0;
    return { text, before: going ? past.before : [...past.before, past.text].slice(-MOST), after: [], at: now };
  }
  const [from, to] = move.do === "undo" ? [past.before, past.after] : [past.after, past.before];
  const text = from.at(-1);
  if (text === undefined) return past;
  const rest = from.slice(0, -1);
  const other = [...to, past.text];
  return move.do === "undo" ? { text, before: rest, after: other, at: 0 } : { text, before: other, after: rest, at: 0 };
}
