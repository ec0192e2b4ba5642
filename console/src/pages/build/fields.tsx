/** One field of a form: what it is for, what counts without it, and a way to write it. */
import { lazy, Suspense, useId, useState } from "react";
import { parse, stringify } from "yaml";
import { isRecord } from "../../logic/build/document";
import { type Field, shownValue, typed } from "../../logic/build/forms";
import { Prose } from "../../ui/small";
import type { Tables } from "./QueryEditor";

const QueryEditor = lazy(() => import("./QueryEditor"));

interface Props {
  field: Field;
  value: unknown;
  /** Columns that can be offered where columns are asked for. */
  columns: readonly string[];
  tables: Tables;
  /** Undefined takes it out of the file. */
  change: (value: unknown) => void;
}

export function FieldInput({ field, value, columns, tables, change }: Props) {
  const id = useId();
  const wide = field.shape === "query" || field.shape === "pairs" || field.shape === "yaml" || field.shape === "group";
  if (field.shape === "group") return <Group field={field} value={value} columns={columns} tables={tables} change={change} />;
  return (
    <div className={`form-field${wide ? " wide" : ""}`}>
      <label htmlFor={id}>{field.key}{field.required && <span className="must" title="needed"> *</span>}</label>
      <Written id={id} field={field} value={value} columns={columns} tables={tables} change={change} />
      <p className="quiet"><Prose text={field.doc} /> {field.hint && <>Written {field.hint}. </>}{field.fallback !== null && <>Default: {field.fallback}.</>}</p>
    </div>
  );
}

function Written({ id, field, value, columns, tables, change }: Props & { id: string }) {
  if (field.shape === "query") {
    return (
      <Suspense fallback={<div className="query" />}>
        <QueryEditor text={shownValue(value)} label={field.key} tables={tables} change={(text) => change(typed(field, text))} />
      </Suspense>
    );
  }
  if (field.shape === "choice") {
    return (
      <select id={id} value={shownValue(value)} onChange={(event) => change(event.target.value || undefined)}>
        {(!field.required || value === undefined) && <option value="">{field.fallback === null ? "" : `${field.fallback} (default)`}</option>}
        {field.choices.map((each) => <option key={each}>{each}</option>)}
      </select>
    );
  }
  if (field.shape === "switch") {
    return <input id={id} type="checkbox" checked={value === undefined ? field.fallback === "yes" : value === true} onChange={(event) => change(event.target.checked)} />;
  }
  if (field.shape === "list") return <List id={id} value={value} columns={field.columns ? columns : []} change={change} />;
  if (field.shape === "pairs") return <Pairs id={id} value={value} change={change} />;
  if (field.shape === "yaml") return <Free id={id} value={value} change={change} />;
  return <Line id={id} field={field} value={value} columns={columns} change={change} />;
}

/** A line that is taken when it is left, or Enter is pressed, so that the file does not change with every letter. */
function Line({ id, field, value, columns, change }: Omit<Props, "tables"> & { id: string }) {
  const [now, setNow] = useOwn(shownValue(value));
  const take = () => {
    const found = typed(field, now);
    if (shownValue(found) !== shownValue(value)) change(found);
  };
  const offered = field.columns && columns.length > 0;
  return (
    <>
      <input
        id={id} value={now} placeholder={field.fallback ?? ""} spellCheck={false} autoComplete="off" list={offered ? `${id}-columns` : undefined}
        inputMode={field.shape === "number" ? "decimal" : undefined}
        onChange={(event) => setNow(event.target.value)} onBlur={take} onKeyDown={(event) => event.key === "Enter" && take()}
      />
      {offered && <datalist id={`${id}-columns`}>{columns.map((each) => <option key={each} value={each} />)}</datalist>}
    </>
  );
}

/** Several texts, each to be taken away; a comma or Enter ends one. */
function List({ id, value, columns, change }: { id: string; value: unknown; columns: readonly string[]; change: (value: unknown) => void }) {
  const items = Array.isArray(value) ? value.map(shownValue) : value === undefined || value === null ? [] : [shownValue(value)];
  const [now, setNow] = useState("");
  const set = (next: string[]) => change(next.length === 0 ? undefined : next);
  const take = (text: string) => {
    const found = text.split(",").map((each) => each.trim()).filter((each) => each !== "" && !items.includes(each));
    if (found.length > 0) set([...items, ...found]);
    setNow("");
  };
  return (
    <div className="chips">
      {items.map((each, index) => (
        <span key={each} className="chip">{each}<button type="button" aria-label={`Take ${each} away`} onClick={() => set(items.filter((_, place) => place !== index))}>✕</button></span>
      ))}
      <input
        id={id} value={now} list={`${id}-columns`} spellCheck={false} autoComplete="off" placeholder={items.length === 0 ? "one or several" : "and…"}
        onChange={(event) => (event.target.value.endsWith(",") || columns.includes(event.target.value) ? take(event.target.value) : setNow(event.target.value))}
        onBlur={() => take(now)}
        onKeyDown={(event) => {
          if (event.key === "Enter") take(now);
          if (event.key === "Backspace" && now === "") set(items.slice(0, -1));
        }}
      />
      <datalist id={`${id}-columns`}>{columns.filter((each) => !items.includes(each)).map((each) => <option key={each} value={each} />)}</datalist>
    </div>
  );
}

/** Names with a text each, such as columns with the expressions they are computed by. */
function Pairs({ id, value, change }: { id: string; value: unknown; change: (value: unknown) => void }) {
  const written = isRecord(value) ? Object.entries(value).map(([key, each]) => [key, shownValue(each)] as const) : [];
  const [added, setAdded] = useState(0);
  const rows = [...written, ...Array.from({ length: written.length === 0 ? Math.max(1, added) : added }, () => ["", ""] as const)];
  const set = (place: number, key: string, text: string) => {
    const next = rows.map((row, index) => (index === place ? ([key, text] as const) : row)).filter(([name]) => name.trim() !== "");
    if (place >= written.length && key.trim() !== "") setAdded(0);
    change(next.length === 0 ? undefined : Object.fromEntries(next));
  };
  return (
    <div className="pairs">
      {rows.map(([key, text], place) => (
        <div key={`${place} ${key}`}>
          <Small id={place === 0 ? id : undefined} label="Name" value={key} take={(next) => set(place, next, text)} />
          <span aria-hidden="true">=</span>
          <Small label={`Value of ${key || "the new one"}`} value={text} take={(next) => set(place, key || (next ? "new" : ""), next)} />
          <button type="button" className="plain" aria-label={`Take ${key || "this"} away`} onClick={() => { setAdded(0); set(place, "", ""); }}>✕</button>
        </div>
      ))}
      <button type="button" className="quiet-button" onClick={() => setAdded(added + 1)}>+ Add</button>
    </div>
  );
}

function Small({ id, label, value, take }: { id?: string | undefined; label: string; value: string; take: (value: string) => void }) {
  const [now, setNow] = useOwn(value);
  const done = () => now !== value && take(now);
  return (
    <input
      id={id} aria-label={label} value={now} spellCheck={false} autoComplete="off" onChange={(event) => setNow(event.target.value)} onBlur={done}
      onKeyDown={(event) => event.key === "Enter" && done()}
    />
  );
}

/** Whatever has no form of its own is written as YAML. */
function Free({ id, value, change }: { id: string; value: unknown; change: (value: unknown) => void }) {
  const written = value === undefined || value === null ? "" : stringify(value, { lineWidth: 0, collectionStyle: "any" }).trimEnd();
  const [now, setNow] = useOwn(written);
  const [wrong, setWrong] = useState("");
  const take = () => {
    if (now === written) return;
    try {
      change(now.trim() === "" ? undefined : (parse(now) as unknown));
      setWrong("");
    } catch (error) {
      setWrong(error instanceof Error ? (error.message.split("\n")[0] ?? "") : "This cannot be read.");
    }
  };
  return (
    <>
      <textarea id={id} className="mono" rows={Math.min(8, Math.max(2, now.split("\n").length))} value={now} spellCheck={false} onChange={(event) => setNow(event.target.value)} onBlur={take} />
      {wrong && <p className="mistakes" role="alert">{wrong}</p>}
    </>
  );
}

/** Settings that belong together; folded as long as nothing of them is written. */
function Group({ field, value, columns, tables, change }: Props) {
  const now = isRecord(value) ? value : {};
  const written = typeof value === "string" ? value : "";
  return (
    <details className="form-group" open={value !== undefined && value !== null}>
      <summary><b>{field.key}</b>{field.required && <span className="must"> *</span>} <span className="quiet">{written || <Prose text={field.doc} />}</span></summary>
      <div className="form-fields">
        {field.fields.map((each) => (
          <FieldInput
            key={each.key} field={each} value={now[each.key]} columns={columns} tables={tables}
            change={(next) => {
              const rest = Object.fromEntries(Object.entries(now).filter(([key]) => key !== each.key || next !== undefined));
              const all = next === undefined ? rest : { ...rest, [each.key]: next };
              change(Object.keys(all).length === 0 ? undefined : all);
            }}
          />
        ))}
      </div>
    </details>
  );
}

/** What is typed, until the value changes from outside. */
function useOwn(value: string): [string, (next: string) => void] {
  const [own, setOwn] = useState({ value, now: value });
  if (own.value !== value) setOwn({ value, now: value });
  return [own.value === value ? own.now : value, (now) => setOwn({ value, now })];
}
