import { parse } from "yaml";
import { describe, expect, it } from "vitest";
import { applied, type Change, changed, isRecord, type Path, same } from "./document";

const FILE = `# What it is for.
apiVersion: penstock/v1
kind: Pipeline
metadata:
  name: demo          # as in the address
  labels: {team: news, tier: "1"}

spec:
  # Rows come from here.
  sources:
    # Made up.
    views:
      generator: {dataset: page_views, rate: 100}   # quick
      eventTime: {column: ts, maxDelay: 5 seconds}

  steps:
    clean: {from: views, filter: ms >= 500}
    # Counted.
    articles:
      from: clean
      sql: |
        SELECT window.start AS minute, count(*) AS views
        FROM clean   -- all of them
        GROUP BY window(ts, '10 seconds')
      late:
        policy: side
        # keeps them for a while
        allowed: 5 minutes
  sinks:
    store:
      from: articles
      sqlite:
        path: ./out/demo.db
        table: top
        key: [minute]
  # The end.
`;

function outside(before: string, after: string): [string[], string[]] {
  const old = before.split("\n");
  const now = after.split("\n");
  let head = 0;
  while (head < Math.min(old.length, now.length) && old[head] === now[head]) head += 1;
  let tail = 0;
  while (tail < Math.min(old.length, now.length) - head && old.at(-1 - tail) === now.at(-1 - tail)) tail += 1;
  return [old.slice(head, old.length - tail), now.slice(head, now.length - tail)];
}

function after(...changes: Change[]): [string[], string[]] {
  return outside(FILE, changed(FILE, changes));
}

describe("changing a file", () => {
  it("touches only the value that is set", () => {
    expect(after({ do: "set", path: ["spec", "sources", "views", "generator", "rate"], value: 250 })).toEqual([
      ["      generator: {dataset: page_views, rate: 100}   # quick"],
      ["      generator: {dataset: page_views, rate: 250}   # quick"],
    ]);
    expect(after({ do: "set", path: ["metadata", "name"], value: "other" })).toEqual([
      ["  name: demo          # as in the address"], ["  name: other          # as in the address"],
    ]);
    expect(after({ do: "set", path: ["metadata", "labels", "tier"], value: "2" })).toEqual([
      ['  labels: {team: news, tier: "1"}'], ['  labels: {team: news, tier: "2"}'],
    ]);
  });

  it("adds to maps as they are written", () => {
    expect(after({ do: "set", path: ["spec", "sources", "views", "generator", "seed"], value: 7 })[1]).toEqual([
      "      generator: {dataset: page_views, rate: 100, seed: 7}   # quick",
    ]);
    expect(after({ do: "set", path: ["spec", "sinks", "store", "sqlite", "version"], value: "minute" })).toEqual([
      [], ["        version: minute"],
    ]);
    expect(after({ do: "set", path: ["spec", "steps", "new"], value: { from: "clean", filter: "a > 1" } })).toEqual([
      [], ["    new: {from: clean, filter: a > 1}"],
    ]);
    expect(after({ do: "set", path: ["spec", "run", "trigger"], value: "2 seconds" })).toEqual([[], ["  run: {trigger: 2 seconds}"]]);
  });

  it("writes queries as blocks", () => {
    const query = "SELECT *\nFROM clean\n";
    expect(after({ do: "set", path: ["spec", "steps", "articles", "sql"], value: query })[1]).toEqual([
      "        SELECT *", "        FROM clean",
    ]);
    expect(after({ do: "set", path: ["spec", "steps", "articles", "sql"], value: "SELECT 1" })[1]).toEqual(["      sql: SELECT 1"]);
  });

  it("removes a node with the comment that speaks of it, and no other", () => {
    const found = changed(FILE, [{ do: "remove", path: ["spec", "steps", "articles"] }]);
    expect(found).not.toContain("Counted.");
    expect(found).not.toContain("keeps them");
    for (const kept of ["# What it is for.", "# Rows come from here.", "# Made up.", "# quick", "# The end."]) expect(found).toContain(kept);
    expect(Object.keys((parse(found) as { spec: { steps: object } }).spec.steps)).toEqual(["clean"]);
  });

  it("renames in place", () => {
    expect(after({ do: "rename", path: ["spec", "steps", "articles"], to: "counts" })).toEqual([["    articles:"], ["    counts:"]]);
  });

  it("leaves a text alone that it cannot read", () => {
    expect(changed("a: [", [{ do: "set", path: ["a"], value: 1 }])).toBe("a: [");
  });

  it("begins with nothing", () => {
    expect(parse(changed("", [{ do: "set", path: ["spec", "sources", "a"], value: { memory: {} } }]))).toEqual({
      spec: { sources: { a: { memory: {} } } },
    });
    expect(changed("spec:\n  sources:\n  sinks: {}\n", [{ do: "set", path: ["spec", "sources", "a"], value: { x: 1 } }])).toBe(
      "spec:\n  sources:\n    a: {x: 1}\n  sinks: {}\n",
    );
    expect(changed("spec:\n  sources: {}   # none yet\n", [{ do: "set", path: ["spec", "sources", "a"], value: { x: { y: 1 }, z: { y: 2 } } }])).toContain(
      "spec:\n  sources:\n    a: {x: {y: 1}, z: {y: 2}}",
    );
  });
});

/** Small numbers from a seed, the same in each run. */
function dice(seed: number): (sides: number) => number {
  let state = seed * 2654435761 + 1;
  return (sides) => {
    state = (Math.imul(state ^ (state >>> 15), 2246822519) + 3266489917) >>> 0;
    return (state >>> 8) % sides;
  };
}

const VALUES: unknown[] = [
  1, 0.5, true, null, "", "plain", "with: colon", "- dash", "# no comment", "'quoted'", '"double"', "yes", "12", "${secret:env/KEY}",
  "line one\nline two\n", "no break\nat the end", " leading\nspace", "tab\there\nand\n", "a\n\n\nb\n", [], {}, ["a", "b c", "d, e"],
  { by: ["x"], values: { n: "count(*)", sum: "sum(a) filter (where b = 'c')" } }, { deep: { deeper: { deepest: [1, { a: "b\nc\n" }] } } },
  "a very long text that goes on and on so that it does not fit into one line of the file at all, whatever the indent of it may be",
];
const KEYS = ["a", "from", "sql", "new one", "x", "true", "späte"];

function paths(value: unknown, at: Path = []): Path[] {
  if (!isRecord(value)) return at.length > 0 ? [at] : [];
  return [...(at.length > 0 ? [at] : []), ...Object.entries(value).flatMap(([key, inner]) => paths(inner, [...at, key]))];
}

describe("any change", () => {
  it("does what was meant, and loses no comment but those of what it removes", () => {
    for (let seed = 1; seed <= 60; seed += 1) {
      const roll = dice(seed);
      let text = FILE;
      for (let turn = 0; turn < 8; turn += 1) {
        const value: unknown = parse(text);
        const known = paths(value);
        const path = known[roll(known.length)] ?? ["spec"];
        const kind = roll(5);
        const key = KEYS[roll(KEYS.length)] ?? "a";
        const change: Change = kind === 0 ? { do: "remove", path }
          : kind === 1 ? { do: "rename", path, to: `${key}${turn}${seed}` }
            : kind === 2 ? { do: "set", path, value: VALUES[roll(VALUES.length)] }
              : { do: "set", path: [...path.slice(0, -1), key], value: VALUES[roll(VALUES.length)], first: kind === 4 };
        const adds = kind >= 3 && !known.some((each) => same(each, change.path));
        const found = changed(text, [change]);
        expect(same(parse(found), applied(value, change)), `${seed} ${turn} ${JSON.stringify(change)}\n${text}\n=>\n${found}`).toBe(true);
        if (kind === 1 || adds) expect(comments(found), `${seed} ${turn}`).toEqual(comments(text));
        text = found;
      }
    }
  }, 20_000);
});

function comments(text: string): string[] {
  return [...text.matchAll(/(?:^|\s)# [A-Za-z].*$/gm)].map(([each]) => each.trim());
}
