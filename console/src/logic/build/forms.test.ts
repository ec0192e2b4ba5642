import { describe, expect, it } from "vitest";
import read from "../../../../docs/generated/penstock.schema.json";
import { BESIDES } from "./model";
import { besidesOf, formatsOf, formOf, isShort, type Schema, settings, takesFormat, typed } from "./forms";

const SCHEMA = read as Schema;

function shapes(kind: string, component: string): Record<string, string> {
  return Object.fromEntries((formOf(SCHEMA, kind, component)?.fields ?? []).map(({ key, shape }) => [key, shape]));
}

describe("forms", () => {
  it("are made for every component, with words for every field", () => {
    const kinds = SCHEMA.$defs as Record<string, { properties: object }>;
    for (const kind of ["source", "step", "sink", "format"]) {
      for (const component of Object.keys(kinds[kind]?.properties ?? {})) {
        if (BESIDES.has(component)) continue;
        const form = formOf(SCHEMA, kind, component);
        expect(form?.doc, `${kind} ${component}`).toBeTruthy();
        for (const field of form?.fields ?? []) expect(field.doc, `${kind} ${component} ${field.key}`).toBeTruthy();
      }
    }
  });

  it("have fields of the right shape", () => {
    expect(shapes("step", "window")).toMatchObject({ size: "text", by: "list", values: "pairs", emit: "choice" });
    expect(shapes("source", "generator")).toMatchObject({ dataset: "choice", rate: "number" });
    expect(shapes("step", "sql")).toEqual({ query: "query" });
    expect(shapes("step", "union")).toEqual({ allowMissing: "switch" });
  });

  it("ask for what is required first", () => {
    const fields = formOf(SCHEMA, "sink", "sqlite")?.fields ?? [];
    expect(fields.slice(0, 2).map(({ key, required }) => [key, required])).toEqual([["table", true], ["path", true]]);
    expect(fields.find(({ key }) => key === "key")).toMatchObject({ columns: true, fallback: null });
    expect(fields.find(({ key }) => key === "onViolation")).toMatchObject({ fallback: "stop", choices: ["dead", "stop"] });
  });

  it("know what stands beside a component, and which sources need a format", () => {
    expect(besidesOf(SCHEMA, "source").map(({ key, shape }) => [key, shape])).toContainEqual(["eventTime", "group"]);
    expect(besidesOf(SCHEMA, "step").map(({ key }) => key)).toEqual(["late"]);
    expect(formatsOf(SCHEMA)).toContain("json");
    expect([takesFormat(SCHEMA, "kafka"), takesFormat(SCHEMA, "generator")]).toEqual([true, false]);
  });

  it("read the short form and the long one", () => {
    const filter = formOf(SCHEMA, "step", "filter");
    if (!filter) throw new Error("unknown");
    expect(filter.short).toBe("where");
    expect(settings(filter, "ms > 5")).toEqual({ where: "ms > 5" });
    expect(settings(filter, { where: "ms > 5" })).toEqual({ where: "ms > 5" });
    expect([isShort(filter, "ms > 5"), isShort(filter, { where: "a" }), isShort(filter, null)]).toEqual([true, false, false]);
    const select = formOf(SCHEMA, "step", "select");
    expect(select && settings(select, { user: "user" })).toEqual({ columns: { user: "user" } });
  });

  it("take what is typed", () => {
    const rate = formOf(SCHEMA, "source", "generator")?.fields.find(({ key }) => key === "rate");
    if (!rate) throw new Error("unknown");
    expect([typed(rate, " 12.5 "), typed(rate, "much"), typed(rate, "")]).toEqual([12.5, "much", undefined]);
  });
});
