/** Events on a line of time; those that would lie on each other become one mark. */
import type { Event } from "../api/types";

export interface Mark {
  /** Between 0 and 1. */
  place: number;
  events: Event[];
  tone: Tone;
}

export type Tone = "bad" | "change" | "plain";

const CLOSE = 0.012;

export function tone({ kind, data, text }: Event): Tone {
  if (kind === "run_ended") return data.outcome === "failed" || data.outcome === "died" || data.outcome === "lost" || data.outcome === "fenced" ? "bad" : "plain";
  if (kind === "alert" || kind === "give_up" || kind === "kill" || kind === "fail_over" || kind === "supervisor_failed") return "bad";
  if (kind === "state") return /→ (FAILED|STALLED|DEGRADED|BACKING_OFF)/.test(text) ? "bad" : "plain";
  return kind.startsWith("pipeline.") ? "change" : "plain";
}

const RANK: readonly Tone[] = ["plain", "change", "bad"];

export function marks(events: readonly Event[], since: number, until: number): Mark[] {
  const found: Mark[] = [];
  const inside = events
    .map((event) => ({ event, place: (Date.parse(event.at) - since) / (until - since) }))
    .filter(({ place }) => place >= 0 && place <= 1)
    .sort((a, b) => a.place - b.place);
  for (const { event, place } of inside) {
    const last = found.at(-1);
    if (last && place - last.place < CLOSE) {
      last.events.push(event);
      if (RANK.indexOf(tone(event)) > RANK.indexOf(last.tone)) last.tone = tone(event);
    } else {
      found.push({ place, events: [event], tone: tone(event) });
    }
  }
  return found;
}
