import { describe, expect, it } from "vitest";
import { connected, draftOf, freeName, mayConnect, nodeAt, remembering, renamed, unconnected, withNode, withoutNode } from "./model";

const FILE = `apiVersion: penstock/v1
kind: Pipeline
metadata: {name: demo}
spec:
  sources:
    views:                       # made up
      generator: {dataset: page_views}
  steps:
    clean: {from: views, filter: ms >= 500}
    counts:
      from: clean
      sql: |
        SELECT clean.article, count(*) AS views
        FROM clean
        GROUP BY 1
    split:
      from: clean
      route: {by: country, to: {home: DE, away: otherwise}}
  sinks:
    store: {from: counts, memory: {}}
    home: {from: split.home, memory: {}}
  tests:
    - name: counts
      given: {views: [{article: a}]}
      expect: {counts: [{views: 1}]}
`;

describe("a file as a graph", () => {
  it("has nodes with what they read and where they stand", () => {
    const draft = draftOf(FILE);
    expect(draft?.name).toBe("demo");
    expect(draft?.nodes.map(({ name, kind, component, inputs }) => [name, kind, component, ...inputs])).toEqual([
      ["views", "source", "generator"], ["clean", "step", "filter", "views"], ["counts", "step", "sql", "clean"],
      ["split", "step", "route", "clean"], ["store", "sink", "memory", "counts"], ["home", "sink", "memory", "split.home"],
    ]);
    expect(draft?.nodes[3]?.outputs).toEqual(["home", "away"]);
    expect(draft && [6, 9, 14, 99].map((line) => nodeAt(draft, line)?.name)).toEqual(["views", "clean", "counts", undefined]);
  });

  it("is nothing if the text is no YAML", () => {
    expect(draftOf("a: [")).toBeNull();
    expect(draftOf("- a")).toBeNull();
    expect(draftOf("")?.nodes).toEqual([]);
  });

  it("gets nodes that begin as their examples", () => {
    const component = { kind: "step", name: "dedupe", doc: "", example: "from: x\ndedupe: {by: [id], within: 10 minutes}\n" };
    const { text, name } = withNode(FILE, component, "clean");
    expect(name).toBe("dedupe");
    expect(text).toBe(FILE.replace("otherwise}}\n", "otherwise}}\n    dedupe:\n      from: clean\n      dedupe: {by: [id], within: 10 minutes}\n"));
    const draft = draftOf(text);
    expect(draft && freeName(draft, "dedupe")).toBe("dedupe_2");
  });

  it("is connected where rows can flow", () => {
    const draft = draftOf(FILE);
    if (!draft) throw new Error("unread");
    expect(mayConnect(draft, "counts", "clean")).toBe(false);
    expect(mayConnect(draft, "store", "clean")).toBe(false);
    expect(mayConnect(draft, "clean", "views")).toBe(false);
    expect(mayConnect(draft, "clean", "counts")).toBe(false);
    expect(mayConnect(draft, "split.away", "store")).toBe(true);
    expect(connected(FILE, "views", "counts")).toBe(FILE.replace("      from: clean\n      sql", "      from: [clean, views]\n      sql"));
    expect(connected(FILE, "split.away", "store")).toBe(FILE.replace("store: {from: counts", "store: {from: split.away"));
    const alone = unconnected(FILE, "clean", "counts");
    expect(alone).toBe(FILE.replace("      from: clean\n      sql", "      sql"));
    expect(connected(alone, "clean", "counts")).toBe(FILE);
  });

  it("lets a query read what it is connected to", () => {
    const { text } = withNode(FILE, { kind: "step", name: "sql", doc: "", example: "sql: SELECT 1" }, null);
    expect(text).toContain("    sql:\n      sql: |\n        SELECT *\n        FROM input\n");
    expect(connected(text, "clean", "sql")).toContain("    sql:\n      from: clean\n      sql: |\n        SELECT *\n        FROM clean\n");
  });

  it("lets a node that is renamed keep its state, until it has its old name again", () => {
    const running = draftOf(FILE);
    if (!running) throw new Error("unread");
    const text = remembering(renamed(FILE, "counts", "totals"), "totals", running, "counts");
    expect(draftOf(text)?.nodes.find(({ name }) => name === "totals")).toMatchObject({ component: "sql", config: { renamedFrom: "counts" } });
    const twice = remembering(renamed(text, "totals", "sums"), "sums", running, "totals");
    expect(draftOf(twice)?.nodes.find(({ name }) => name === "sums")?.config.renamedFrom).toBe("counts");
    expect(remembering(renamed(twice, "sums", "counts"), "counts", running, "sums")).toBe(FILE);
  });

  it("gives a join its second input", () => {
    const file = "spec:\n  sources: {a: {memory: {}}, b: {memory: {}}}\n  steps:\n    j: {join: {on: [id]}}\n";
    const both = connected(connected(file, "a", "j"), "b", "j");
    expect(both).toContain("j: {from: a, join: {on: [id], with: b}}");
    expect(unconnected(both, "b", "j")).toContain("j: {from: a, join: {on: [id]}}");
  });

  it("loses a node with what reads it left unread", () => {
    const text = withoutNode(FILE, "split");
    expect(text).toContain("    home: {memory: {}}\n");
    expect(draftOf(text)?.nodes.map(({ name }) => name)).not.toContain("split");
  });

  it("renames a node wherever it is named", () => {
    const text = renamed(FILE, "clean", "long");
    expect(text).toContain("long: {from: views, filter: ms >= 500}");
    expect(text).toContain("SELECT long.article, count(*) AS views\n        FROM long\n");
    expect(draftOf(text)?.nodes.flatMap(({ inputs }) => inputs)).toEqual(["views", "long", "long", "counts", "split.home"]);
    expect(renamed(FILE, "split", "parts")).toContain("home: {from: parts.home, memory: {}}");
    expect(renamed(FILE, "views", "hits")).toContain("    hits:                       # made up");
    expect(renamed(FILE, "views", "hits")).toContain("given: {hits: [");
  });
});
