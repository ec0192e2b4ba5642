/** The text of a pipeline file with its mistakes at their lines. */
import { yaml } from "@codemirror/lang-yaml";
import { type Diagnostic, setDiagnostics } from "@codemirror/lint";
import { EditorView } from "codemirror";
import { useEffect } from "react";
import type { Mistake } from "../../logic/mistakes";
import { replaced, useEditor } from "./editor";

interface Props {
  /** What it shows; a change from outside is put in where it belongs, and the rest stays. */
  text: string;
  label: string;
  mistakes: readonly Mistake[];
  change: (text: string) => void;
  /** Told when somebody puts the cursor on another line. */
  line?: ((line: number) => void) | undefined;
  /** A line to bring into view; another object each time it is wanted. */
  shown?: { line: number } | null;
}

export default function CodeEditor({ text, label, mistakes, change, line, shown }: Props) {
  const { host, view } = useEditor({
    text, label, extensions: yaml,
    heard: ({ docChanged, selectionSet, state, startState }) => {
      if (docChanged) change(state.doc.toString());
      const now = state.doc.lineAt(state.selection.main.head).number;
      if (selectionSet && now !== startState.doc.lineAt(startState.selection.main.head).number) line?.(now);
    },
  });
  useEffect(() => {
    if (view.current) replaced(view.current, text);
  }, [text, view]);
  useEffect(() => {
    const editor = view.current;
    if (!editor || !shown || shown.line > editor.state.doc.lines) return;
    editor.dispatch({ effects: EditorView.scrollIntoView(editor.state.doc.line(shown.line).from, { y: "center" }) });
  }, [shown, view]);
  useEffect(() => {
    const editor = view.current;
    if (editor) editor.dispatch(setDiagnostics(editor.state, mistakes.map((each) => placed(editor, each))));
  }, [mistakes, view]);
  return <div ref={host} className="editor" />;
}

function placed({ state }: EditorView, { line, column, text, severity }: Mistake): Diagnostic {
  const at = state.doc.line(Math.min(Math.max(line, 1), state.doc.lines));
  const from = Math.min(at.from + Math.max(column - 1, 0), at.to);
  return { from, to: at.to, severity, message: text };
}
