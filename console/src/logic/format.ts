/** Numbers and times as people read them; fixed forms, so that what moves does not jump. */

const DASH = "–";

function scaled(value: number, base: number, units: readonly string[]): string {
  let size = Math.abs(value);
  let unit = 0;
  // What would be shown as 1000 is shown in the next unit.
  while (size >= base - (unit ? 0.05 : 0.5) && unit < units.length - 1) {
    size /= base;
    unit += 1;
  }
  const sign = value < 0 ? "−" : "";
  const digits = unit === 0 ? (size < 10 && size % 1 >= 0.05 ? size.toFixed(1) : size.toFixed(0)) : size < 100 ? size.toFixed(1) : size.toFixed(0);
  return `${sign}${digits}${units[unit] ? ` ${units[unit]}` : ""}`;
}

/** 7, 950, 12.1 k, 3.4 M */
export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? DASH : scaled(value, 1000, ["", "k", "M", "G", "T"]);
}

/** 12,345,678 */
export function exact(value: number | null | undefined): string {
  return value === null || value === undefined ? DASH : value.toLocaleString("en-US");
}

export function rate(value: number | null | undefined): string {
  return value === null || value === undefined ? DASH : `${count(value)}/s`;
}

export function bytes(value: number | null | undefined): string {
  return value === null || value === undefined ? DASH : scaled(value, 1000, ["B", "kB", "MB", "GB", "TB"]);
}

const STEPS: readonly (readonly [string, number])[] = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];

/** 0.8 s, 42 s, 4 min 10 s, 3 h 2 min, 2 d 5 h */
export function span(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return DASH;
  if (seconds < 0) return span(0);
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  let left = Math.round(seconds);
  const parts: string[] = [];
  for (const [unit, size] of STEPS) {
    const whole = Math.floor(left / size);
    if (whole > 0 || parts.length > 0) parts.push(`${whole} ${unit}`);
    left %= size;
    if (parts.length === 2) break;
  }
  return parts.filter((part, index) => index === 0 || !part.startsWith("0 ")).join(" ");
}

/** The same with milliseconds where it is short: 41 ms, 0 s, 4 min 10 s */
export function brief(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || seconds <= 0 || seconds >= 1) return seconds === 0 ? "0 s" : span(seconds);
  return seconds < 0.9995 ? `${Math.max(1, Math.round(seconds * 1000))} ms` : "1.0 s";
}

/** How long ago a moment was: "now", "12 s ago", "3 h ago"; one unit only. */
export function ago(at: string | number | null | undefined, now: number): string {
  if (at === null || at === undefined) return DASH;
  const seconds = (now - (typeof at === "number" ? at : Date.parse(at))) / 1000;
  if (seconds < -1) return `in ${one(-seconds)}`;
  return seconds < 1.5 ? "now" : `${one(seconds)} ago`;
}

function one(seconds: number): string {
  const [unit, size] = STEPS.find(([, each]) => seconds >= each) ?? (["s", 1] as const);
  return `${Math.floor(seconds / size)} ${unit}`;
}

/** 2026-03-01 12:00:00 UTC */
export function utc(at: string | number): string {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? String(at) : `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

/** The time of day where the reader is, with the day if it is another than today. */
export function clock(at: string | number, now: number): string {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return String(at);
  const sameDay = date.toDateString() === new Date(now).toDateString();
  return sameDay ? CLOCK.format(date) : `${DAY.format(date)} ${CLOCK.format(date)}`;
}

export function plural(number: number, noun: string, many = `${noun}s`): string {
  return `${exact(number)} ${number === 1 ? noun : many}`;
}
