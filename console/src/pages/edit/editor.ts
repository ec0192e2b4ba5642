/**
 * An editor of text for a component to hold.
 *
 * It lives in a shadow root: there the editor's styles are constructed sheets, which the policy of the page allows,
 * while in the page itself they would be style elements, which it does not.
 */
import { syntaxHighlighting } from "@codemirror/language";
import { Annotation, EditorState, type Extension } from "@codemirror/state";
import { basicSetup, EditorView } from "codemirror";
import { type RefObject, useEffect, useRef } from "react";
import { COLOURS, LOOK } from "./look";

/** Marks what was not typed here. */
const OUTSIDE = Annotation.define<boolean>();

type Update = Parameters<Parameters<typeof EditorView.updateListener.of>[0]>[0];

interface Wanted {
  /** What it shows first. */
  text: string;
  label: string;
  /** Its language and whatever else it has; those of the first call stay. */
  extensions: () => Extension;
  /** Told of what somebody does in it, not of what is put in from outside. */
  heard: (update: Update) => void;
}

/** The element to put it in, and the editor once it is there. */
export function useEditor(wanted: Wanted): { host: RefObject<HTMLDivElement | null>; view: RefObject<EditorView | null> } {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const first = useRef(wanted);
  const heard = useRef(wanted.heard);
  useEffect(() => {
    heard.current = wanted.heard;
  });
  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
    const { text, label, extensions } = first.current;
    const made = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: text,
        extensions: [
          basicSetup,
          extensions(),
          LOOK,
          syntaxHighlighting(COLOURS),
          EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
          EditorView.updateListener.of((update) => {
            if (!update.transactions.some((each) => each.annotation(OUTSIDE))) heard.current(update);
          }),
        ],
      }),
    });
    view.current = made;
    return () => {
      made.destroy();
      view.current = null;
    };
  }, []);
  return { host, view };
}

/** Puts a text in the place of what is there: only the piece in which they differ, so that the cursor stays. */
export function replaced(editor: EditorView, text: string): void {
  const now = editor.state.doc.toString();
  if (now !== text) editor.dispatch({ changes: difference(now, text), annotations: OUTSIDE.of(true) });
}

function difference(before: string, after: string): { from: number; to: number; insert: string } {
  const least = Math.min(before.length, after.length);
  let from = 0;
  while (from < least && before[from] === after[from]) from += 1;
  let tail = 0;
  while (tail < least - from && before.at(-1 - tail) === after.at(-1 - tail)) tail += 1;
  return { from, to: before.length - tail, insert: after.slice(from, after.length - tail) };
}
