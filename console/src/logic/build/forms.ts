/** Fields of a form, from the JSON Schema of the pipeline file. */
import { isRecord } from "./document";

export type Schema = Record<string, unknown>;

export interface Field {
  key: string;
  /** How it is written: a line of text, a number, a switch, one of some, several texts, named texts, a query, or YAML. */
  shape: "text" | "number" | "switch" | "choice" | "list" | "pairs" | "query" | "group" | "yaml";
  doc: string;
  required: boolean;
  /** What counts if nothing is written, in words. */
  fallback: string | null;
  choices: string[];
  hint: string;
  secret: boolean;
  /** Whether it names columns, which can be offered. */
  columns: boolean;
  /** The fields of a group. */
  fields: Field[];
}

export interface Form {
  fields: Field[];
  /** The field that may stand alone in place of all, as in `filter: ms > 5`. */
  short: string | null;
  doc: string;
}

const QUERIES = new Set(["query", "where", "sql"]);

/** The settings of a component of a kind; null if the schema does not know it. */
export function formOf(schema: Schema, kind: string, component: string): Form | null {
  const holder = definition(schema, kind);
  const entry = isRecord(holder?.properties) ? holder.properties[component] : undefined;
  if (!isRecord(entry)) return null;
  const forms = Array.isArray(entry.anyOf) ? (entry.anyOf as unknown[]).filter(isRecord) : [entry];
  const long = forms.map((each) => resolved(schema, each)).find((each) => isRecord(each.properties));
  if (!long) return null;
  const fields = fieldsOf(schema, long);
  const others = forms.filter((each) => resolved(schema, each) !== long && each.type !== "null");
  const short = others.length > 0 ? (fields.find(({ required }) => required)?.key ?? null) : null;
  return { fields, short, doc: text(entry.description) };
}

/** What stands beside the component: event time of sources, late rows of steps. */
export function besidesOf(schema: Schema, kind: string): Field[] {
  const holder = definition(schema, kind);
  const properties = isRecord(holder?.properties) ? holder.properties : {};
  return ["eventTime", "throttle", "late", "bootstrap"].flatMap((key) => {
    const each = properties[key];
    return isRecord(each) ? [fieldOf(schema, key, each, false)] : [];
  });
}

/** The names of all formats that rows of a source may have. */
export function formatsOf(schema: Schema): string[] {
  const holder = definition(schema, "format");
  return isRecord(holder?.properties) ? Object.keys(holder.properties) : [];
}

/** Whether a source needs to be told the format of its rows. */
export function takesFormat(schema: Schema, component: string): boolean {
  const rules = definition(schema, "source")?.allOf;
  return Array.isArray(rules) && rules.some((rule) => isRecord(rule) && isRecord(rule.if) && Array.isArray(rule.if.required)
    && rule.if.required[0] === component && isRecord(rule.then) && Array.isArray(rule.then.required));
}

function definition(schema: Schema, name: string): Schema | null {
  const found = isRecord(schema.$defs) ? schema.$defs[name] : undefined;
  return isRecord(found) ? found : null;
}

function resolved(schema: Schema, part: Schema): Schema {
  const name = typeof part.$ref === "string" ? (part.$ref.split("/").at(-1) ?? "") : null;
  const found = name === null ? null : definition(schema, name);
  return found ?? part;
}

/** Required fields first, else in the order of the schema. */
function fieldsOf(schema: Schema, part: Schema): Field[] {
  const required = new Set(Array.isArray(part.required) ? (part.required as string[]) : []);
  const properties = isRecord(part.properties) ? part.properties : {};
  const found = Object.entries(properties).flatMap(([key, each]) => (isRecord(each) ? [fieldOf(schema, key, each, required.has(key))] : []));
  return [...found.filter((each) => each.required), ...found.filter((each) => !each.required)];
}

function fieldOf(schema: Schema, key: string, part: Schema, required: boolean): Field {
  const forms = (Array.isArray(part.anyOf) ? (part.anyOf as unknown[]).filter(isRecord) : [part])
    .filter((each) => each.type !== "null").map((each) => resolved(schema, each));
  const doc = text(part.description);
  const shaped = shapeOf(schema, key, forms);
  const examples = forms.flatMap((each) => (Array.isArray(each.examples) ? (each.examples as unknown[]) : []));
  return {
    key, required, doc, fallback: fallback(part.default), secret: part["x-secret"] === true,
    hint: examples.length > 0 ? `such as ${examples.slice(0, 2).map(String).join(" or ")}` : "",
    columns: /\bcolumns?\b/i.test(doc) && (shaped.shape === "text" || shaped.shape === "list"), ...shaped,
  };
}

type Shaped = Pick<Field, "shape" | "choices" | "fields">;

function shapeOf(schema: Schema, key: string, forms: readonly Schema[]): Shaped {
  const plain = (shape: Field["shape"], more: Partial<Shaped> = {}): Shaped => ({ shape, choices: [], fields: [], ...more });
  const choices = forms.flatMap((each) => (Array.isArray(each.enum) ? (each.enum as unknown[]).map(String) : []));
  const only = forms.length === 1 ? forms[0] : undefined;
  if (choices.length > 0 && only) return plain("choice", { choices });
  if (!only) return plain(forms.every(({ type }) => type === "string" || type === "number" || type === "integer") ? "text" : "yaml");
  if (only.type === "string") return plain(QUERIES.has(key) ? "query" : "text");
  if (only.type === "number" || only.type === "integer") return plain("number");
  if (only.type === "boolean") return plain("switch");
  if (only.type === "array") return plain(isRecord(only.items) && only.items.type === "string" ? "list" : "yaml");
  if (only.type === "object" && isRecord(only.properties)) return plain("group", { fields: fieldsOf(schema, only) });
  if (only.type === "object" && isRecord(only.additionalProperties) && only.additionalProperties.type === "string") return plain("pairs");
  return plain("yaml");
}

function fallback(value: unknown): string | null {
  if (value === undefined || value === null) return null;
  if (Array.isArray(value)) return value.length === 0 ? null : value.map(String).join(", ");
  if (isRecord(value)) return Object.keys(value).length === 0 ? null : JSON.stringify(value);
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

// --- values ------------------------------------------------------------------------------------------------

/** The settings of a component as they are written, in the long form. */
export function settings(form: Form, value: unknown): Record<string, unknown> {
  if (form.short === null) return isRecord(value) ? value : {};
  const known = new Set(form.fields.map(({ key }) => key));
  if (isRecord(value) && form.short in value && Object.keys(value).every((key) => known.has(key))) return value;
  return value === null || value === undefined ? {} : { [form.short]: value };
}

/** Whether the one setting that matters stands in place of all. */
export function isShort(form: Form, value: unknown): boolean {
  return form.short !== null && value !== null && value !== undefined && settings(form, value) !== value;
}

/** What is typed into a field, as a value; undefined for nothing, which takes it out of the file. */
export function typed(field: Field, written: string): unknown {
  const line = written.trim();
  if (line === "") return undefined;
  if (field.shape === "number") return Number.isFinite(Number(line)) ? Number(line) : line;
  return field.shape === "query" ? written : line;
}

export function shownValue(value: unknown): string {
  return value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value);
}
