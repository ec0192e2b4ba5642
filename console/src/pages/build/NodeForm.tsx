/** The settings of one node, as a form made from the schema of its component. */
import { useState } from "react";
import { type Change, isRecord } from "../../logic/build/document";
import { besidesOf, type Field, formatsOf, formOf, isShort, type Schema, settings, takesFormat } from "../../logic/build/forms";
import { type BuildNode, type Draft, mayConnect, nameProblem } from "../../logic/build/model";
import { Prose } from "../../ui/small";
import { FieldInput } from "./fields";
import type { Tables } from "./QueryEditor";

interface Props {
  draft: Draft;
  node: BuildNode;
  schema: Schema;
  tables: Tables;
  apply: (changes: Change[]) => void;
  rename: (to: string) => void;
  connect: (from: string) => void;
  cut: (from: string) => void;
  remove: () => void;
}

export function NodeForm({ draft, node, schema, tables, apply, rename, connect, cut, remove }: Props) {
  const component = node.component ?? "";
  const form = formOf(schema, node.kind, component);
  const columns = [...new Set(Object.values(tables).flat())];
  const value = node.config[component];
  const now = form ? settings(form, value) : {};
  const own = (field: Field, next: unknown): Change => {
    const at = [...node.path, component];
    if (form && field.key === form.short && (isShort(form, value) || value === null || value === undefined) && next !== undefined) return { do: "set", path: at, value: next };
    if (form && isShort(form, value)) return { do: "set", path: at, value: { ...now, [field.key]: next } };
    return next === undefined ? { do: "remove", path: [...at, field.key] } : { do: "set", path: [...at, field.key], value: next };
  };
  const [required, further] = [form?.fields.filter((each) => each.required) ?? [], form?.fields.filter((each) => !each.required) ?? []];
  const used = further.filter(({ key }) => key in now);
  const unused = further.filter(({ key }) => !(key in now));
  const input = (field: Field) => (
    <FieldInput key={field.key} field={field} value={now[field.key]} columns={columns} tables={tables} change={(next) => apply([own(field, next)])} />
  );
  return (
    <div className="node-form">
      <div className="form-fields">
        <Name key={node.name} draft={draft} node={node} rename={rename} />
        {node.kind !== "source" && <Inputs draft={draft} node={node} connect={connect} cut={cut} />}
        <div className="form-field end"><button type="button" className="danger" onClick={remove}>Remove</button></div>
      </div>
      {form ? (
        <>
          <div className="form-fields">{[...required, ...used].map(input)}</div>
          {node.kind === "source" && takesFormat(schema, component) && <Format node={node} schema={schema} columns={columns} apply={apply} />}
          {besidesOf(schema, node.kind).map((field) => (
            <FieldInput
              key={field.key} field={field} value={node.config[field.key]} columns={columns} tables={tables}
              change={(next) => apply([next === undefined ? { do: "remove", path: [...node.path, field.key] } : { do: "set", path: [...node.path, field.key], value: next }])}
            />
          ))}
          {unused.length > 0 && (
            <details className="form-group">
              <summary>{unused.length} more {unused.length === 1 ? "setting" : "settings"} <span className="quiet">{unused.map(({ key }) => key).join(", ")}</span></summary>
              <div className="form-fields">{unused.map(input)}</div>
            </details>
          )}
          <details className="form-group about"><summary>About {component}</summary><p className="doc"><Prose text={form.doc} /></p></details>
        </>
      ) : <p className="quiet">{component ? `There is no component ${component}.` : "Nothing is written of it yet."} Write it in the file.</p>}
    </div>
  );
}

function Name({ draft, node, rename }: { draft: Draft; node: BuildNode; rename: (to: string) => void }) {
  const [now, setNow] = useState(node.name);
  const wrong = nameProblem(draft, now, node.name);
  const take = () => wrong === null && now !== node.name && rename(now);
  return (
    <div className="form-field">
      <label htmlFor="node-name">name</label>
      <input id="node-name" value={now} spellCheck={false} autoComplete="off" aria-invalid={wrong !== null} onChange={(event) => setNow(event.target.value)} onBlur={take} onKeyDown={(event) => event.key === "Enter" && take()} />
      <p className={wrong ? "mistakes" : "quiet"}>{wrong ?? "It is renamed wherever it is named."}</p>
    </div>
  );
}

function Inputs({ draft, node, connect, cut }: { draft: Draft; node: BuildNode; connect: (from: string) => void; cut: (from: string) => void }) {
  const offered = draft.nodes.flatMap((each) => (each.outputs.length > 0 ? each.outputs.map((output) => `${each.name}.${output}`) : [each.name]))
    .filter((name) => mayConnect(draft, name, node.name));
  return (
    <div className="form-field">
      <label htmlFor="node-from">from</label>
      <div className="chips">
        {node.inputs.map((each) => <span key={each} className="chip">{each}<button type="button" aria-label={`Do not read ${each}`} onClick={() => cut(each)}>✕</button></span>)}
        <select id="node-from" value="" onChange={(event) => event.target.value && connect(event.target.value)}>
          <option value="">{node.inputs.length === 0 ? "choose…" : "another…"}</option>
          {offered.map((each) => <option key={each}>{each}</option>)}
        </select>
      </div>
      <p className="quiet">What it reads. Or draw a line on the canvas.</p>
    </div>
  );
}

/** Rows of files and messages are in a format, which has settings of its own. */
function Format({ node, schema, columns, apply }: { node: BuildNode; schema: Schema; columns: readonly string[]; apply: (changes: Change[]) => void }) {
  const written = isRecord(node.config.format) ? node.config.format : {};
  const name = Object.keys(written)[0] ?? "";
  const form = name ? formOf(schema, "format", name) : null;
  const now = isRecord(written[name]) ? written[name] : {};
  const path = [...node.path, "format"];
  return (
    <details className="form-group" open>
      <summary><b>format</b><span className="must"> *</span> <span className="quiet">How the rows are written.</span></summary>
      <div className="form-fields">
        <div className="form-field">
          <label htmlFor="node-format">format</label>
          <select id="node-format" value={name} onChange={(event) => apply([{ do: "set", path, value: { [event.target.value]: keptSchema(now) } }])}>
            {name === "" && <option value="" />}
            {formatsOf(schema).map((each) => <option key={each}>{each}</option>)}
          </select>
        </div>
        {form?.fields.map((field) => (
          <FieldInput
            key={field.key} field={field} value={now[field.key]} columns={columns} tables={{}}
            change={(next) => apply([next === undefined ? { do: "remove", path: [...path, name, field.key] } : { do: "set", path: [...path, name, field.key], value: next }])}
          />
        ))}
      </div>
    </details>
  );
}

function keptSchema(now: Record<string, unknown>): Record<string, unknown> {
  return "schema" in now ? { schema: now.schema } : {};
}
