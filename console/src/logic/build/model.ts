/** A pipeline file as nodes and edges, and what one does to these as changes of its text. */
import { isMap, isScalar, LineCounter, parse, parseDocument } from "yaml";
import { type Change, changed, isRecord, type Path } from "./document";

export type Kind = "source" | "step" | "sink";
export const SECTIONS = { source: "sources", step: "steps", sink: "sinks" } as const;
const KINDS: readonly Kind[] = ["source", "step", "sink"];
/** What stands beside the component of a node. */
export const BESIDES: ReadonlySet<string> = new Set(["from", "late", "eventTime", "format", "bootstrap", "throttle", "renamedFrom"]);
/** Steps that read any number of inputs, and those whose second input has a key of its own. */
/** Stands in a query for the input that it will have. */
const NOTHING = "input";
const MANY = new Set(["union", "sql", "python"]);
const WITH = new Set(["join", "changelog_join"]);

export interface BuildNode {
  name: string;
  kind: Kind;
  /** What it is made of; null while that is not written yet. */
  component: string | null;
  config: Record<string, unknown>;
  inputs: string[];
  /** Names under which parts of its rows are read, as `NAME.OUTPUT`. */
  outputs: string[];
  path: Path;
  /** First and last line in the file, from 1. */
  lines: readonly [number, number];
}

export interface Draft {
  name: string;
  nodes: BuildNode[];
}

export interface Component {
  kind: string;
  name: string;
  doc: string;
  example: string;
}

/** The nodes of a file; null for a text that is no YAML, or another kind of it. */
export function draftOf(text: string): Draft | null {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines });
  if (document.errors.length > 0) return null;
  const value: unknown = document.toJS();
  if (value !== null && !isRecord(value)) return null;
  const spec = isRecord(value?.spec) ? value.spec : {};
  const nodes = KINDS.flatMap((kind) => {
    const section = spec[SECTIONS[kind]];
    if (!isRecord(section)) return [];
    const held = document.getIn(["spec", SECTIONS[kind]]);
    return Object.entries(section).map(([name, config]) => {
      const pair = isMap(held) ? held.items.find((each) => isScalar(each.key) && String(each.key.value) === name) : undefined;
      const from = isScalar(pair?.key) && pair.key.range ? pair.key.range[0] : 0;
      const range = pair?.value as { range?: [number, number, number] } | null | undefined;
      const to = Math.max(from, (range?.range?.[1] ?? from) - 1);
      return nodeOf(kind, name, isRecord(config) ? config : {}, [lines.linePos(from).line, lines.linePos(to).line]);
    });
  });
  const metadata = isRecord(value?.metadata) ? value.metadata : {};
  return { name: typeof metadata.name === "string" ? metadata.name : "", nodes };
}

function nodeOf(kind: Kind, name: string, config: Record<string, unknown>, lines: readonly [number, number]): BuildNode {
  const component = Object.keys(config).find((key) => !BESIDES.has(key)) ?? null;
  const own = component === null ? undefined : config[component];
  const from = kind === "source" ? [] : texts(config.from);
  const further = isRecord(own) && WITH.has(component ?? "") ? texts(own.with) : [];
  const to = component === "route" && isRecord(own) && isRecord(own.to) ? Object.keys(own.to) : [];
  return {
    name, kind, component, config, lines, outputs: to, path: ["spec", SECTIONS[kind], name],
    inputs: [...from, ...further.filter((each) => !from.includes(each))],
  };
}

function texts(value: unknown): string[] {
  if (typeof value === "string") return [value];
  return Array.isArray(value) ? value.filter((each): each is string => typeof each === "string") : [];
}

/** The node that stands at a line of the file. */
export function nodeAt(draft: Draft, line: number): BuildNode | undefined {
  return draft.nodes.find(({ lines: [from, to] }) => from <= line && line <= to);
}

/** The node whose rows an input names: itself, or the one it is a part of. */
export function nodeOfInput(draft: Draft, input: string): { node: BuildNode; output: string | null } | null {
  const whole = draft.nodes.find(({ name }) => name === input);
  if (whole) return { node: whole, output: null };
  const dot = input.indexOf(".");
  const node = dot > 0 ? draft.nodes.find(({ name }) => name === input.slice(0, dot)) : undefined;
  return node ? { node, output: input.slice(dot + 1) } : null;
}

// --- changes -----------------------------------------------------------------------------------------------

/** A name that no node has yet. */
export function freeName(draft: Draft, wanted: string): string {
  const taken = new Set(draft.nodes.map(({ name }) => name));
  if (!taken.has(wanted)) return wanted;
  let number = 2;
  while (taken.has(`${wanted}_${number}`)) number += 1;
  return `${wanted}_${number}`;
}

/** The text with one more node, which begins as the example of its component does, and that node's name. */
export function withNode(text: string, component: Component, from: string | null): { text: string; name: string } {
  const draft = draftOf(text);
  const kind = KINDS.find((each) => each === component.kind);
  if (!draft || !kind) return { text, name: "" };
  const name = freeName(draft, component.name);
  const example: unknown = parse(component.example);
  const written = isRecord(example) ? example : { [component.name]: {} };
  const rest = Object.fromEntries(Object.entries(written).filter(([key]) => key !== "from"));
  const config = kind === "source" ? rest : { ...(from === null ? {} : { from }), ...fitting(component.name, rest, from) };
  return { text: changed(text, [{ do: "set", path: ["spec", SECTIONS[kind], name], value: config }]), name };
}

/** An example for the input it gets: a query reads from it, and a second input is chosen by whoever builds. */
function fitting(component: string, config: Record<string, unknown>, from: string | null): Record<string, unknown> {
  const own = config[component];
  if (component === "sql") return { ...config, sql: `SELECT *\nFROM ${from ?? NOTHING}\n` };
  if (WITH.has(component) && isRecord(own)) {
    return { ...config, [component]: Object.fromEntries(Object.entries(own).filter(([key]) => key !== "with")) };
  }
  return config;
}

export function withoutNode(text: string, name: string): string {
  const draft = draftOf(text);
  const node = draft?.nodes.find((each) => each.name === name);
  if (!draft || !node) return text;
  const cut = draft.nodes.reduce(
    (now, reader) => reader.inputs.filter((input) => nodeOfInput(draft, input)?.node.name === name).reduce(
      (inner, input) => unconnected(inner, input, reader.name), now),
    text,
  );
  return changed(cut, [{ do: "remove", path: node.path }]);
}

/** Why a name cannot be given to a node; null if it can. */
export function nameProblem(draft: Draft, name: string, old: string): string | null {
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) return "Letters, digits and _, not beginning with a digit.";
  return name !== old && draft.nodes.some((each) => each.name === name) ? "There is another node of this name." : null;
}

/** The text with a node under another name, wherever it is named: where it is read, in queries, tests and late rows. */
export function renamed(text: string, name: string, to: string): string {
  const draft = draftOf(text);
  const node = draft?.nodes.find((each) => each.name === name);
  if (!draft || !node || name === to) return text;
  const now = (input: string) => (input === name ? to : input.startsWith(`${name}.`) ? `${to}${input.slice(name.length)}` : input);
  const changes: Change[] = [];
  for (const reader of draft.nodes) {
    const from = reader.config.from;
    if (typeof from === "string" && now(from) !== from) changes.push({ do: "set", path: [...reader.path, "from"], value: now(from) });
    if (Array.isArray(from) && texts(from).some((each) => now(each) !== each)) {
      changes.push({ do: "set", path: [...reader.path, "from"], value: texts(from).map(now) });
    }
    const own = reader.component === null ? undefined : reader.config[reader.component];
    if (isRecord(own) && WITH.has(reader.component ?? "") && typeof own.with === "string" && now(own.with) !== own.with) {
      changes.push({ do: "set", path: [...reader.path, reader.component ?? "", "with"], value: now(own.with) });
    }
    if (reader.inputs.includes(name) && reader.component === "sql") {
      const [path, query] = typeof own === "string" ? [["sql"], own] : isRecord(own) ? [["sql", "query"], own.query] : [[], null];
      if (typeof query === "string") changes.push({ do: "set", path: [...reader.path, ...path], value: inQuery(query, name, to) });
    }
    const late = reader.config.late;
    if (node.kind === "sink" && isRecord(late) && late.sink === name) changes.push({ do: "set", path: [...reader.path, "late", "sink"], value: to });
  }
  changes.push({ do: "rename", path: node.path, to });
  return inTests(changed(text, changes), name, to);
}

/** The text in which a node of the running version, now under another name, says which one it was: its state goes with it. */
export function remembering(text: string, name: string, running: Draft, before: string): string {
  const node = draftOf(text)?.nodes.find((each) => each.name === name);
  const kept = node?.config.renamedFrom;
  if (!node || node.kind === "sink") return text;
  if (kept === name) return changed(text, [{ do: "remove", path: [...node.path, "renamedFrom"] }]);
  if (kept !== undefined || !running.nodes.some((each) => each.name === before && each.kind === node.kind)) return text;
  return changed(text, [{ do: "set", path: [...node.path, "renamedFrom"], value: before }]);
}

/** Tables of a query and the columns that name their table. */
function inQuery(query: string, name: string, to: string): string {
  const escaped = name.replace(/[^\w]/g, "\\$&");
  return query.replace(new RegExp(`(\\b(?:from|join)\\s+|,\\s*)\\b${escaped}\\b(?!\\s*\\()`, "gi"), (_, before: string) => `${before}${to}`)
    .replace(new RegExp(`\\b${escaped}\\.(?=\\w)`, "g"), `${to}.`);
}

/** Tests name what they feed and expect by node. */
function inTests(text: string, name: string, to: string): string {
  const value: unknown = parseDocument(text).toJS();
  const tests = isRecord(value) && isRecord(value.spec) && Array.isArray(value.spec.tests) ? (value.spec.tests as unknown[]) : [];
  return changed(text, tests.flatMap((test, place) => ["given", "expect"].flatMap((part): Change[] => {
    const rows = isRecord(test) ? test[part] : undefined;
    return isRecord(rows) && name in rows ? [{ do: "rename", path: ["spec", "tests", place, part, name], to }] : [];
  })));
}

/** Whether rows can flow from one node to another: none flows into a source, out of a sink, or in a circle. */
export function mayConnect(draft: Draft, from: string, to: string): boolean {
  const source = nodeOfInput(draft, from);
  const target = draft.nodes.find(({ name }) => name === to);
  if (!source || !target || source.node.kind === "sink" || target.kind === "source" || source.node.name === to) return false;
  const seen = new Set<string>();
  const waiting = [source.node.name];
  while (waiting.length > 0) {
    const name = waiting.pop() ?? "";
    if (name === to) return false;
    if (seen.has(name)) continue;
    seen.add(name);
    for (const input of draft.nodes.find((each) => each.name === name)?.inputs ?? []) {
      waiting.push(nodeOfInput(draft, input)?.node.name ?? "");
    }
  }
  return !target.inputs.includes(from);
}

export function connected(text: string, from: string, to: string): string {
  const draft = draftOf(text);
  const node = draft?.nodes.find((each) => each.name === to);
  if (!draft || !node || !mayConnect(draft, from, to)) return text;
  const now = texts(node.config.from);
  const component = node.component ?? "";
  if (now.length > 0 && WITH.has(component)) return changed(text, [{ do: "set", path: [...node.path, component, "with"], value: from }]);
  const value = now.length > 0 && MANY.has(component) ? [...now, from] : from;
  const query = node.config.sql;
  const reads: Change[] = now.length === 0 && typeof query === "string" && component === "sql"
    ? [{ do: "set", path: [...node.path, "sql"], value: inQuery(query, NOTHING, from) }] : [];
  return changed(text, [{ do: "set", path: [...node.path, "from"], value, first: true }, ...reads]);
}

export function unconnected(text: string, from: string, to: string): string {
  const node = draftOf(text)?.nodes.find((each) => each.name === to);
  if (!node) return text;
  const own = node.component === null ? undefined : node.config[node.component];
  if (isRecord(own) && own.with === from) return changed(text, [{ do: "remove", path: [...node.path, node.component ?? "", "with"] }]);
  const left = texts(node.config.from).filter((each) => each !== from);
  if (left.length === texts(node.config.from).length) return text;
  if (left.length === 0) return changed(text, [{ do: "remove", path: [...node.path, "from"] }]);
  return changed(text, [{ do: "set", path: [...node.path, "from"], value: left.length === 1 ? left[0] : left }]);
}
