/**
 * Changes to the text of a pipeline file that leave all else of it as it was written: comments, order, spaces.
 *
 * A change is cut into the text where it belongs. What that gives is read again and compared with what was meant; should
 * the text be written in a way in which cutting goes wrong, the whole is written anew, which keeps comments and order.
 */
import { type Document, isAlias, isMap, isScalar, isSeq, type Pair, parseDocument, Scalar, stringify, type YAMLMap } from "yaml";

export type Key = string | number;
export type Path = readonly Key[];
export type Value = unknown;

export type Change =
  /** `first` says where a key goes that is not there yet: before all others, else after them. */
  | { do: "set"; path: Path; value: Value; first?: boolean }
  | { do: "remove"; path: Path }
  | { do: "rename"; path: Path; to: string };

interface Cut {
  from: number;
  to: number;
  text: string;
}

const WIDEST = 88;

/** The text after these changes, one after another; as it is, if it cannot be read. */
export function changed(text: string, changes: readonly Change[]): string {
  return changes.reduce(once, text);
}

function once(text: string, change: Change): string {
  const document = read(text);
  if (!document) return text;
  const meant = applied(document.toJS() as Value, change);
  if (same(meant, document.toJS())) return text;
  const cut = cutFor(text, document, change);
  if (cut) {
    const found = text.slice(0, cut.from) + cut.text + text.slice(cut.to);
    const again = read(found);
    if (again && same(again.toJS(), meant)) return found;
  }
  return anew(text, change);
}

export function read(text: string): Document | null {
  const document = parseDocument(text, { keepSourceTokens: true });
  return document.errors.length === 0 && (document.contents === null || isMap(document.contents)) ? document : null;
}

// --- what is meant -----------------------------------------------------------------------------------------

/** A plain value after a change. */
export function applied(value: Value, change: Change): Value {
  const [key, ...rest] = change.path;
  if (key === undefined) return change.do === "set" ? change.value : value;
  const inner = { ...change, path: rest } as Change;
  if (Array.isArray(value)) {
    if (rest.length === 0 && change.do === "remove") return value.filter((_, index) => index !== key);
    return value.map((each: Value, index) => (index === key ? applied(each, inner) : each));
  }
  const map = isRecord(value) ? value : {};
  const name = String(key);
  if (rest.length > 0) {
    if (change.do !== "set" && !(name in map)) return value;
    return { ...map, [name]: applied(map[name], inner) };
  }
  if (change.do === "set") return change.first && !(name in map) ? { [name]: change.value, ...map } : { ...map, [name]: change.value };
  if (!(name in map)) return value;
  const kept = Object.entries(map).filter(([each]) => change.do === "rename" || each !== name);
  return Object.fromEntries(kept.map(([each, held]) => [change.do === "rename" && each === name ? change.to : each, held]));
}

export function isRecord(value: Value): value is Record<string, Value> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Whether two values are the same, the order of keys included; a missing value is like null. */
export function same(a: Value, b: Value): boolean {
  return JSON.stringify(a ?? null) === JSON.stringify(b ?? null);
}

// --- cutting -----------------------------------------------------------------------------------------------

interface Found {
  map: YAMLMap;
  pair: Pair | undefined;
}

function cutFor(text: string, document: Document, change: Change): Cut | null {
  const found = find(document, change.path);
  if (!found) return change.do === "set" ? cutInto(text, document, change.path, change.value) : null;
  const { map, pair } = found;
  if (change.do === "rename") {
    const range = pair && rangeOf(pair.key);
    return range ? { from: range[0], to: range[1], text: keyText(change.to) } : null;
  }
  if (change.do === "remove") return pair ? cutOut(text, document, change.path, map, pair) : null;
  const key = String(change.path.at(-1));
  if (pair) return cutOver(text, map, pair, change.value);
  const holder = map.flow && map.items.length === 0 ? find(document, change.path.slice(0, -1)) : null;
  // `{}` stands for nothing yet, and says nothing about how what comes is to be written.
  if (holder?.pair && !holder.map.flow) return cutOver(text, holder.map, holder.pair, { [key]: change.value }, true);
  return change.first ? cutBefore(text, map, key, change.value) : cutBeside(text, map, key, change.value);
}

/** The map that holds the last key of a path; nothing where there is none. */
function find(document: Document, path: Path): Found | null {
  let map: unknown = document.contents;
  for (const [place, key] of path.entries()) {
    if (isSeq(map) && typeof key === "number") {
      map = map.items[key];
      continue;
    }
    if (!isMap(map) || typeof key !== "string") return null;
    const pair: Pair | undefined = map.items.find((each) => isScalar(each.key) && String(each.key.value) === key);
    if (place === path.length - 1) return { map, pair };
    map = pair?.value;
  }
  return null;
}

/** Sets what stands under a key that is not there, or holds nothing yet. */
function cutInto(text: string, document: Document, path: Path, value: Value): Cut | null {
  const above = path.slice(0, -1);
  const key = path.at(-1);
  if (above.length === 0 || typeof key !== "string") return null;
  const found = find(document, above);
  const wrapped = { [key]: value };
  if (!found) return cutInto(text, document, above, wrapped);
  const { map, pair } = found;
  if (!pair) return cutBeside(text, map, String(above.at(-1)), wrapped);
  const empty = pair.value === null || (isScalar(pair.value) && pair.value.value === null);
  return empty ? cutOver(text, map, pair, wrapped, !map.flow) : null;
}

/** Puts another value in the place of one. */
function cutOver(text: string, map: YAMLMap, pair: Pair, value: Value, block = false): Cut | null {
  const key = rangeOf(pair.key);
  if (!key) return null;
  const range = rangeOf(pair.value);
  const colon = text.indexOf(":", key[1]);
  if (colon < 0) return null;
  const indent = map.flow ? null : columnOf(text, key[0]);
  const written = block && indent !== null && isRecord(value) ? `\n${blockText(value, indent + 2)}` : valueText(value, indent, pair.value);
  // A block value begins on a line of its own, so it is put in from the colon on; a comment there stays.
  if (range && range[1] > range[0] && !written.startsWith("\n") && !text.slice(colon, range[0]).includes("\n")) {
    return { from: range[0], to: endOf(text, range), text: written.trimStart() };
  }
  const until = range && range[1] > range[0] ? endOf(text, range) : colon + 1;
  const between = range && range[1] > range[0] ? text.slice(colon + 1, range[0]) : "";
  if (between.includes("#")) return null;
  return { from: colon + 1, to: until, text: written.startsWith("\n") ? written : ` ${written.trimStart()}` };
}

/** Adds a pair after the last one. */
function cutBeside(text: string, map: YAMLMap, key: string, value: Value): Cut | null {
  const range = map.range;
  if (!range) return null;
  const last = map.items.at(-1);
  if (map.flow) {
    const close = range[1] - 1;
    const pair = `${keyText(key)}: ${flowText(value)}`;
    if (!last) return { from: range[0], to: range[1], text: `{${pair}}` };
    const end = rangeOf(last.value)?.[1] ?? rangeOf(last.key)?.[1];
    if (end === undefined || text.slice(end, close).trim() !== "") return null;
    return { from: end, to: end, text: `, ${pair}` };
  }
  const first = rangeOf(map.items[0]?.key);
  if (!first || !last) return null;
  const indent = columnOf(text, first[0]);
  const at = endOfPair(text, last);
  if (at === null) return null;
  const written = valueText(value, indent);
  const pair = `${" ".repeat(indent)}${keyText(key)}:${written.startsWith("\n") ? written : ` ${written}`}`;
  const before = at > 0 && text[at - 1] !== "\n" ? "\n" : "";
  const after = at < text.length && text[at] !== "\n" ? "\n" : at === text.length || before === "" ? "\n" : "";
  return { from: at, to: at, text: `${before}${pair}${after}` };
}

/** Adds a pair before the first one, and after the comments above that. */
function cutBefore(text: string, map: YAMLMap, key: string, value: Value): Cut | null {
  const first = rangeOf(map.items[0]?.key);
  if (!first) return cutBeside(text, map, key, value);
  if (map.flow) return { from: first[0], to: first[0], text: `${keyText(key)}: ${flowText(value)}, ` };
  const indent = columnOf(text, first[0]);
  const written = valueText(value, indent);
  return { from: first[0], to: first[0], text: `${keyText(key)}:${written.startsWith("\n") ? "" : " "}${written}\n${" ".repeat(indent)}` };
}

/** Takes a pair out, with the comment right above it; a map that is left empty says so. */
function cutOut(text: string, document: Document, path: Path, map: YAMLMap, pair: Pair): Cut | null {
  const key = rangeOf(pair.key);
  if (!key || !map.range) return null;
  if (map.items.length === 1) {
    if (map.flow) return { from: map.range[0], to: map.range[1], text: "{}" };
    const holder = find(document, path.slice(0, -1));
    return holder?.pair ? cutOver(text, holder.map, holder.pair, {}) : null;
  }
  const place = map.items.indexOf(pair);
  if (map.flow) {
    const next = rangeOf(map.items[place + 1]?.key);
    if (next) return { from: key[0], to: next[0], text: "" };
    const before = map.items[place - 1];
    const from = rangeOf(before?.value)?.[1] ?? rangeOf(before?.key)?.[1];
    const to = rangeOf(pair.value)?.[1] ?? key[1];
    return from === undefined ? null : { from, to, text: "" };
  }
  const to = endOfPair(text, pair);
  if (to === null) return null;
  let from = lineStart(text, key[0]);
  const column = key[0] - from;
  while (from > 0) {
    const above = lineStart(text, from - 1);
    const line = text.slice(above, from - 1);
    if (!line.trimStart().startsWith("#") || line.length - line.trimStart().length !== column) break;
    from = above;
  }
  return { from, to: text[to] === "\n" && (from === 0 || text[from - 1] === "\n") ? to + 1 : to, text: "" };
}

// --- places in the text ------------------------------------------------------------------------------------

type Range = readonly [number, number];

function rangeOf(node: unknown): Range | null {
  if (!isScalar(node) && !isMap(node) && !isSeq(node) && !isAlias(node)) return null;
  const range = node.range;
  return range ? [range[0], range[1]] : null;
}

/** The end of a value without the line break that a block of text may hold. */
function endOf(text: string, [from, to]: Range): number {
  let end = to;
  while (end > from && (text[end - 1] === "\n" || text[end - 1] === " ")) end -= 1;
  return end;
}

/** Where the next line of the same depth could begin, after the comment at the end of the pair's last line. */
function endOfPair(text: string, pair: Pair): number | null {
  const key = rangeOf(pair.key);
  if (!key) return null;
  const range = deepest(pair.value) ?? rangeOf(pair.value);
  const end = range && range[1] > range[0] ? endOf(text, range) : text.indexOf(":", key[1]) + 1;
  const line = text.indexOf("\n", end);
  return line < 0 ? text.length : line;
}

/** The last value inside a block; comments after it, of which one does not know what they belong to, stay outside. */
function deepest(node: unknown): Range | null {
  if (isMap(node) && !node.flow) {
    const last = node.items.at(-1);
    return deepest(last?.value) ?? rangeOf(last?.value) ?? rangeOf(last?.key);
  }
  if (isSeq(node) && !node.flow) {
    const last = node.items.at(-1);
    return deepest(last) ?? rangeOf(last);
  }
  return rangeOf(node);
}

function lineStart(text: string, at: number): number {
  return text.lastIndexOf("\n", at - 1) + 1;
}

function columnOf(text: string, at: number): number {
  return at - lineStart(text, at);
}

// --- values as text ----------------------------------------------------------------------------------------

function keyText(key: string): string {
  return flowText(key);
}

function flowText(value: Value): string {
  return stringify(value, { collectionStyle: "flow", flowCollectionPadding: false, lineWidth: 0, ...PLAIN }).trimEnd();
}

const PLAIN = { defaultStringType: Scalar.PLAIN, defaultKeyType: Scalar.PLAIN } as const;

/** A value after its key: on the same line if it is short, else below it. In a flow map it is always short. */
function valueText(value: Value, indent: number | null, before?: unknown): string {
  if (indent === null) return flowText(value);
  if (typeof value === "string") return textText(value, indent, before);
  if (!isRecord(value) && !Array.isArray(value)) return flowText(value);
  const flow = flowText(value);
  const isBlock = (isMap(before) || isSeq(before)) && !before.flow;
  if (!flow.includes("\n") && flow.length + indent < WIDEST && !isBlock && depth(value) < 3 && !hasLines(value)) return flow;
  if ((Array.isArray(value) ? value.length : Object.keys(value).length) === 0) return flow;
  return `\n${blockText(value, indent + 2)}`;
}

function blockText(value: Record<string, Value> | Value[], indent: number): string {
  const before = " ".repeat(indent);
  if (Array.isArray(value)) return indented(stringify(value, { lineWidth: 0, ...PLAIN }), indent);
  return Object.entries(value).map(([key, inner]) => {
    const written = valueText(inner, indent);
    return `${before}${keyText(key)}:${written.startsWith("\n") ? "" : " "}${written}`;
  }).join("\n");
}

function textText(value: string, indent: number, before: unknown): string {
  if (!value.includes("\n")) {
    const kept = isScalar(before) && (before.type === "QUOTE_DOUBLE" || before.type === "QUOTE_SINGLE") ? before.type : Scalar.PLAIN;
    return stringify(value, { lineWidth: 0, defaultStringType: kept }).trimEnd();
  }
  const end = value.endsWith("\n") ? (value.endsWith("\n\n") ? null : "|") : "|-";
  if (end === null || /^[\s]|[^\S\n]\n|[^\S\n]$|\t|\r/.test(value)) return JSON.stringify(value);
  return `${end}\n${indented(value, indent + 2)}`;
}

function indented(text: string, by: number): string {
  return text.trimEnd().split("\n").map((line) => (line === "" ? "" : " ".repeat(by) + line)).join("\n");
}

function depth(value: Value): number {
  if (Array.isArray(value)) return 1 + Math.max(0, ...value.map(depth));
  return isRecord(value) ? 1 + Math.max(0, ...Object.values(value).map(depth)) : 0;
}

function hasLines(value: Value): boolean {
  if (typeof value === "string") return value.includes("\n");
  return (Array.isArray(value) || isRecord(value)) && Object.values(value).some(hasLines);
}

// --- the last resort ---------------------------------------------------------------------------------------

function anew(text: string, change: Change): string {
  const document = parseDocument(text);
  if (change.do === "set") {
    const added = !document.hasIn(change.path);
    document.setIn(change.path, document.createNode(change.value));
    const holder = change.path.length === 1 ? document.contents : document.getIn(change.path.slice(0, -1));
    if (added && change.first && isMap(holder)) holder.items.unshift(...holder.items.splice(-1));
  }
  else if (change.do === "remove") document.deleteIn(change.path);
  else {
    const holder = change.path.length === 1 ? document.contents : document.getIn(change.path.slice(0, -1));
    const pair = isMap(holder) ? holder.items.find((each) => isScalar(each.key) && each.key.value === change.path.at(-1)) : undefined;
    if (pair && isScalar(pair.key)) pair.key.value = change.to;
  }
  return document.toString({ lineWidth: 0, flowCollectionPadding: false });
}
