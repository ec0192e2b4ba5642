/** SQL with the columns of its inputs to complete. */
import { sql, SQLDialect, type SQLNamespace } from "@codemirror/lang-sql";
import { Compartment } from "@codemirror/state";
import { EditorView } from "codemirror";
import { useEffect, useRef } from "react";
import { replaced, useEditor } from "../edit/editor";

export type Tables = Record<string, readonly string[]>;

interface Props {
  text: string;
  label: string;
  tables: Tables;
  change: (text: string) => void;
}

const SPARK = SQLDialect.define({
  keywords: "select from where group by having order join left right full inner outer on using as and or not in is null between like case when then else end distinct union all filter over partition rows range with values cast interval window lateral view asc desc limit true false exists",
  builtin: "count sum avg min max stddev percentile approx_count_distinct collect_list collect_set first last coalesce nullif date timestamp to_timestamp date_trunc unix_timestamp lower upper trim substring concat split regexp_extract round floor ceil abs window session_window explode size element_at from_json to_json struct named_struct array map if ifnull greatest least",
  types: "string int bigint double float decimal boolean date timestamp binary array map struct",
  identifierQuotes: "`", hashComments: false, slashComments: false,
});

function language(tables: Tables) {
  const names = Object.keys(tables);
  const schema: SQLNamespace = Object.fromEntries(Object.entries(tables).map(([name, columns]) => [name, [...columns]]));
  return sql({ dialect: SPARK, upperCaseKeywords: true, schema, ...(names.length === 1 && names[0] ? { defaultTable: names[0] } : {}) });
}

export default function QueryEditor({ text, label, tables, change }: Props) {
  const slot = useRef(new Compartment());
  const { host, view } = useEditor({
    text, label, extensions: () => [slot.current.of(language(tables)), EditorView.lineWrapping],
    heard: ({ docChanged, state }) => docChanged && change(state.doc.toString()),
  });
  const known = JSON.stringify(tables);
  useEffect(() => {
    view.current?.dispatch({ effects: slot.current.reconfigure(language(JSON.parse(known) as Tables)) });
  }, [known, view]);
  useEffect(() => {
    const editor = view.current;
    // A block of text ends with a line break, which is not worth moving the cursor for.
    if (editor && editor.state.doc.toString().trimEnd() !== text.trimEnd()) replaced(editor, text);
  }, [text, view]);
  return <div ref={host} className="query" />;
}
