/** Which rows the overview shows, in which order, and which of them are on the screen. */
import type { LivePipeline } from "../api/types";
import { type Group, lag, meaning, urgency } from "./health";

export const SORTS = { urgency: "Most urgent", name: "Name", lag: "Furthest behind", rate: "Most rows/s", changed: "Last changed" } as const;
export type Sort = keyof typeof SORTS;

export interface Wanted {
  text: string;
  group: Group | "";
  label: string;
  sort: Sort;
}

export function wantedFrom(query: URLSearchParams): Wanted {
  const sort = query.get("sort") ?? "";
  return {
    text: query.get("q") ?? "",
    group: (query.get("state") ?? "") as Group | "",
    label: query.get("label") ?? "",
    sort: Object.hasOwn(SORTS, sort) ? (sort as Sort) : "urgency",
  };
}

function holds(pipeline: LivePipeline, text: string): boolean {
  const labels = Object.entries(pipeline.labels).map(([key, value]) => `${key}=${value}`);
  const words = [pipeline.name, pipeline.target, pipeline.reason, meaning(pipeline.state).word, ...labels].join("\n").toLowerCase();
  return text.toLowerCase().split(/\s+/).every((part) => words.includes(part));
}

/** Rows for all that was asked for but the group, so that the counts of groups tell what else there is. */
export function matching(all: Iterable<LivePipeline>, wanted: Wanted): LivePipeline[] {
  const [key, value] = split(wanted.label);
  return [...all].filter(
    (each) => (!wanted.text || holds(each, wanted.text)) && (!key || each.labels[key] === value));
}

function split(label: string): [string, string] {
  const place = label.indexOf("=");
  return place < 0 ? ["", ""] : [label.slice(0, place), label.slice(place + 1)];
}

export function countGroups(found: Iterable<LivePipeline>): Record<Group, number> {
  const counts: Record<Group, number> = { attention: 0, catching: 0, changing: 0, healthy: 0, stopped: 0 };
  for (const each of found) counts[meaning(each.state).group] += 1;
  return counts;
}

export function labelsOf(all: Iterable<LivePipeline>): string[] {
  const found = new Set<string>();
  for (const each of all) for (const [key, value] of Object.entries(each.labels)) found.add(`${key}=${value}`);
  return [...found].sort();
}

type Order = (a: LivePipeline, b: LivePipeline) => number;
const byName: Order = (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
const most = (of: (pipeline: LivePipeline) => number | null): Order => (a, b) => (of(b) ?? -1) - (of(a) ?? -1);
const ORDERS: Record<Sort, Order> = {
  urgency: (a, b) => urgency(a.state) - urgency(b.state),
  name: byName,
  lag: most(lag),
  rate: most((each) => each.rowsPerSecond),
  changed: most((each) => Math.max(Date.parse(each.since), Date.parse(each.updatedAt))),
};

export function sorted(found: readonly LivePipeline[], sort: Sort): LivePipeline[] {
  return [...found].sort((a, b) => ORDERS[sort](a, b) || byName(a, b));
}

/** The rows from and to (exclusive) that lie on the screen, with some around them. */
export function window(scroll: number, height: number, row: number, total: number, around = 6): [number, number] {
  const first = Math.floor(Math.max(0, scroll) / row);
  const last = Math.ceil((Math.max(0, scroll) + height) / row);
  return [Math.max(0, Math.min(first - around, total)), Math.min(total, last + around)];
}

/** Blocks of rows whose trends are asked for together, so that scrolling by one row asks nothing new. */
export function blocks(from: number, to: number, size: number): number[] {
  const found: number[] = [];
  for (let block = Math.floor(from / size); block * size < to; block += 1) found.push(block);
  return found;
}

