/** Building a pipeline: canvas and file are one thing in two views, always in step. */
import { useMutation, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useMemo, useReducer, useState } from "react";
import { useNavigate } from "react-router";
import { api, WHILE_BUSY } from "../../api/client";
import { savepoints } from "../../api/savepoints";
import type { Plan } from "../../api/types";
import { type Change, changed } from "../../logic/build/document";
import { connected, draftOf as graphOf, type Draft, nodeAt, nodeOfInput, remembering, renamed, unconnected, withNode, withoutNode } from "../../logic/build/model";
import { begun, moves } from "../../logic/build/moves";
import { plural } from "../../logic/format";
import { type Mistake, mistakesIn, mistakesOf } from "../../logic/mistakes";
import { loses, losses } from "../../logic/plan";
import { ColumnsKnown } from "../../ui/ColumnsKnown";
import { Confirm } from "../../ui/Dialog";
import { Loading, Mistakes } from "../../ui/states";
import { useToasts } from "../../ui/toasts";
import { draftOf, keepDraft } from "../edit/drafts";
import { RunBeside } from "../edit/RunBeside";
import { useApply, useChecked, useGuard, usePlan, useSettled } from "../edit/editing";
import { PlanView } from "../edit/PlanView";
import "./build.css";
import type { Column } from "./Canvas";
import { NodeForm } from "./NodeForm";
import { Palette } from "./Palette";
import { Sample } from "./Sample";

const Canvas = lazy(() => import("./Canvas"));
const CodeEditor = lazy(() => import("../edit/CodeEditor"));
const ANALYSED_MS = 900;

type Tab = "settings" | "rows" | "columns";
const TABS: readonly [Tab, string][] = [["settings", "Settings"], ["rows", "Rows"], ["columns", "Columns"]];

interface Props {
  path: string;
  initial: string;
  /** What unapplied changes are kept under. */
  draft: string;
  /** The pipeline that is edited; none for a new one. */
  name?: string;
  /** The savepoint that a new one begins with. */
  fork?: { pipeline: string; savepoint: string };
}

export function Builder({ path, initial, draft: key, name, fork }: Props) {
  const [past, dispatch] = useReducer(moves, draftOf(key) ?? initial, begun);
  const { text } = past;
  const [picked, setPicked] = useState<string | null>(null);
  const [tab, setTab] = useState<Tab>("settings");
  const [target, setTarget] = useState<string | null>(null);
  const [asking, setAsking] = useState(false);
  const [shown, setShown] = useState<{ line: number } | null>(null);
  const graph = useGraph(text);
  const files = useMemo(() => [{ path, text }], [path, text]);
  const { components, schema, targets } = useReference();
  const checked = useChecked(path, text);
  const known = useKnown(path, text);
  const plan = usePlan(files);
  const apply = useApply({ files, after: () => setAsking(false), applied: () => keepDraft(key, initial, initial) });
  const mistakes = useMistakes(checked, known.problems);
  const problems = useMemo(() => byNode(graph, mistakes), [graph, mistakes]);
  useGuard(text !== initial && !apply.isSuccess);

  useEffect(() => keepDraft(key, text, initial), [key, text, initial]);

  // Several changes may come before this is drawn again, so each is made to what the one before has left.
  const set = (next: string | ((before: string) => string)) => {
    dispatch({ do: "write", text: next });
    plan.reset();
  };
  const choose = (found: string | null) => {
    setPicked(found);
    const line = graph.nodes.find((each) => each.name === found)?.lines[0];
    if (line !== undefined) setShown({ line });
  };
  const move = (what: "undo" | "redo") => {
    dispatch({ do: what });
    plan.reset();
  };
  const node = graph.nodes.find((each) => each.name === picked);
  const tables = useMemo(() => Object.fromEntries((node?.inputs ?? []).map((input) => [input, (known.columns.get(input) ?? []).map((each) => each.name)])), [node, known.columns]);
  const add = (kind: string, component: string, after: typeof node) => {
    const found = components.find((each) => each.kind === kind && each.name === component);
    if (!found) return "";
    const before = after && after.kind !== "sink" ? (after.outputs[0] === undefined ? after.name : `${after.name}.${after.outputs[0]}`) : null;
    const made = withNode(text, found, before);
    set(made.text);
    setPicked(made.name);
    setTab("settings");
    return made.name;
  };
  const edit = (changes: Change[]) => set((now) => changed(now, changes));
  const isNew = name === undefined;
  const running = useMemo(() => graphOf(initial), [initial]);
  const kept = (now: string, to: string, before: string) => (running && (!isNew || fork) ? remembering(now, to, running, before) : now);
  const wrong = Boolean(checked.error) || mistakes.some(({ severity }) => severity === "error");
  const forking = useFork(fork, () => keepDraft(key, initial, initial));
  const deploy = async () => {
    if (fork) {
      forking.mutate({ file: { path, text }, lose: [] });
      return;
    }
    const found = await plan.mutateAsync(target).catch(() => null);
    if (found?.changes) apply.mutate({ plan: found, target });
  };
  const go = (found: Plan) => (loses(found) ? setAsking(true) : apply.mutate({ plan: found, target }));
  const other = !isNew && plan.data?.steps.find((step) => step.name !== name);
  return (
    <div className="builder">
      <div className="builder-bar">
        <div className="buttons">
          <button type="button" disabled={past.before.length === 0} onClick={() => move("undo")} aria-label="Undo" title="Undo">↶</button>
          <button type="button" disabled={past.after.length === 0} onClick={() => move("redo")} aria-label="Redo" title="Redo">↷</button>
          {isNew && <PipelineName name={graph.name} rename={(to) => edit([{ do: "set", path: ["metadata", "name"], value: to }])} />}
          {text !== initial && <button type="button" className="quiet-button" onClick={() => set(initial)}>Throw changes away</button>}
        </div>
        <p role="status" className={`verdict${wrong ? " wrong" : ""}`}>{verdict(checked.isFetching, Boolean(checked.error), checked.data !== undefined, mistakes)}</p>
        <div className="buttons">
          {isNew && targets.length > 1 && (
            <label><span className="unseen">Target</span>
              <select value={target ?? ""} onChange={(event) => setTarget(event.target.value || null)}>
                <option value="">on the default target</option>
                {targets.map((each) => <option key={each} value={each}>on {each}</option>)}
              </select>
            </label>
          )}
          {isNew ? (
            <button type="button" className="primary" disabled={wrong || checked.isFetching || plan.isPending || apply.isPending || forking.isPending} onClick={() => void deploy()}>
              {plan.isPending || apply.isPending || forking.isPending ? "Deploying…" : fork ? "Fork" : "Deploy"}
            </button>
          ) : (
            <>
              <button type="button" className={plan.data ? "" : "primary"} disabled={text === initial || plan.isPending || wrong} onClick={() => plan.mutate(null)}>{plan.isPending ? "Planning…" : "Plan"}</button>
              {plan.data?.changes && <RunBeside name={name} file={{ path, text }} plan={plan.data} begun={() => keepDraft(key, initial, initial)} />}
              {plan.data?.changes && <button type="button" className="primary" disabled={apply.isPending} onClick={() => plan.data && go(plan.data)}>{apply.isPending ? "Applying…" : "Apply"}</button>}
            </>
          )}
        </div>
      </div>
      {plan.error && !checked.error ? <Mistakes error={plan.error} /> : null}
      {!isNew && plan.data && (
        <section className="card planned" aria-label="Plan">
          {other && <p className="note">The file names another pipeline, {other.name}. {name} stays as it is.</p>}
          <PlanView plan={plan.data} />
        </section>
      )}
      <div className="builder-main">
        <Palette components={components} add={({ kind, name: component }) => add(kind, component, node)} />
        <section className="builder-middle" aria-label="Canvas">
          <Suspense fallback={<Loading what="the canvas" />}>
            <Canvas
              draft={graph} chosen={picked} problems={problems} columns={known.columns} choose={choose} drop={(kind, component) => add(kind, component, undefined)}
              connect={(from, to) => set((now) => connected(now, from, to))} cut={(from, to) => set((now) => unconnected(now, from, to))}
              remove={(gone) => { set((now) => withoutNode(now, gone)); setPicked(null); }} columnsAsked={(asked) => { setPicked(asked); setTab("columns"); }}
            />
          </Suspense>
          <div className="inspector">
            {node ? (
              <>
                <div className="tabs">
                  <div role="tablist" aria-label={`${node.kind} ${node.name}`}>
                    {TABS.map(([each, title]) => <button key={each} type="button" role="tab" aria-selected={tab === each} onClick={() => setTab(each)}>{title}</button>)}
                  </div>
                  <span className="quiet">{node.kind} {node.name}</span>
                </div>
                <Wrong mistakes={mistakes.filter(({ line }) => nodeAt(graph, line)?.name === node.name)} />
                {tab === "settings" && schema && (
                  <NodeForm
                    key={node.name} draft={graph} node={node} schema={schema} tables={tables} apply={edit} connect={(from) => set((now) => connected(now, from, node.name))}
                    cut={(from) => set((now) => unconnected(now, from, node.name))} remove={() => { set((now) => withoutNode(now, node.name)); setPicked(null); }}
                    rename={(to) => { set((now) => kept(renamed(now, node.name, to), to, node.name)); setPicked(to); }}
                  />
                )}
                {tab === "rows" && <Sample file={files[0] ?? { path, text }} node={node.name} />}
                {tab === "columns" && <ColumnsKnown nodes={known.nodes} name={known.nodes.has(node.name) ? node.name : `${node.name}.${node.outputs[0] ?? ""}`} />}
              </>
            ) : <p className="quiet inspector-empty">Choose a node to set it up, see its rows and its columns. Draw lines from the right edge of one to the left edge of another.</p>}
          </div>
        </section>
        <section className="builder-file" aria-label="File">
          <Suspense fallback={<Loading what="the editor" />}>
            <CodeEditor
              text={text} label={`Text of ${path}`} mistakes={mistakes} change={set} shown={shown}
              line={(line) => { const found = nodeAt(graph, line); if (found) setPicked(found.name); }}
            />
          </Suspense>
          <Wrong mistakes={mistakes.filter(({ line }) => !nodeAt(graph, line))} />
        </section>
      </div>
      {asking && plan.data && (
        <Confirm title="Apply, and lose state?" action="Apply" word={name ?? plan.data.steps[0]?.name} busy={apply.isPending} confirm={() => plan.data && apply.mutate({ plan: plan.data, target })} close={() => setAsking(false)}>
          <PlanView plan={plan.data} />
        </Confirm>
      )}
      {fork && losses(forking.error).length > 0 && (
        <Confirm title="Fork, and begin with less?" action="Fork" word={graph.name} busy={forking.isPending} confirm={() => forking.mutate({ file: { path, text }, lose: losses(forking.error).map(({ node }) => node) })} close={forking.reset}>
          <p>{fork.savepoint} holds state that the new pipeline has no use for as its file is now. {fork.pipeline} and the savepoint keep it.</p>
          <ul className="mistakes">{losses(forking.error).map(({ node, reason }) => <li key={node}><b>{node}</b>: {reason}</li>)}</ul>
        </Confirm>
      )}
    </div>
  );
}

/** A pipeline that begins where a savepoint of another stands. */
function useFork(fork: Props["fork"], done: () => void) {
  const navigate = useNavigate();
  const toasts = useToasts();
  return useMutation({
    mutationFn: ({ file, lose }: { file: { path: string; text: string }; lose: string[] }) => savepoints.fork(fork?.pipeline ?? "", fork?.savepoint ?? "", file, lose),
    onSuccess: ({ pipeline }) => {
      done();
      toasts.done(`${pipeline.name} begins with ${fork?.savepoint ?? ""}`);
      void navigate(`/pipelines/${encodeURIComponent(pipeline.name)}`);
    },
    onError: (error) => losses(error).length === 0 && toasts.failed(error),
  });
}

function PipelineName({ name, rename }: { name: string; rename: (to: string) => void }) {
  const [own, setOwn] = useState({ name, now: name });
  if (own.name !== name) setOwn({ name, now: name });
  const take = () => own.now.trim() !== "" && own.now !== name && rename(own.now.trim());
  return (
    <label className="pipeline-name"><span className="quiet">Name</span>
      <input value={own.now} spellCheck={false} autoComplete="off" onChange={(event) => setOwn({ name, now: event.target.value })} onBlur={take} onKeyDown={(event) => event.key === "Enter" && take()} />
    </label>
  );
}

function Wrong({ mistakes }: { mistakes: readonly Mistake[] }) {
  if (mistakes.length === 0) return null;
  return <ul className="wrong-list">{mistakes.map(({ text, line, severity }, index) => <li key={index} className={severity}><span className="mono quiet">line {line}</span> {text}</li>)}</ul>;
}

function verdict(busy: boolean, refused: boolean, sound: boolean, mistakes: readonly Mistake[]): string {
  if (busy) return "Checking…";
  const errors = mistakes.filter(({ severity }) => severity === "error").length;
  if (errors > 0) return plural(errors, "problem");
  if (refused) return "The file could not be checked";
  return sound ? `The file is sound${mistakes.length > 0 ? `, with ${plural(mistakes.length, "warning")}` : ""}` : "";
}

/** The graph of the text, or of the last text that could be read: a canvas does not vanish while somebody types. */
function useGraph(text: string): Draft {
  const found = useMemo(() => graphOf(text), [text]);
  const [last, setLast] = useState<Draft>({ name: "", nodes: [] });
  if (found && found !== last) setLast(found);
  return found ?? last;
}

function useReference() {
  const components = useQuery({ queryKey: ["components"], queryFn: () => api.get("/api/v1/components", {}), staleTime: Infinity });
  const schema = useQuery({ queryKey: ["schema"], queryFn: () => api.get("/api/v1/schema", {}), staleTime: Infinity });
  const targets = useQuery({ queryKey: ["targets"], queryFn: () => api.get("/api/v1/targets", {}), staleTime: 60_000 });
  return { components: components.data ?? [], schema: schema.data ?? null, targets: targets.data?.map((each) => each.name) ?? [] };
}

/** What Spark's analyser knows of the text; what it knew before stays until it knows more. */
function useKnown(path: string, text: string) {
  const settled = useSettled(text, ANALYSED_MS);
  const found = useQuery({
    queryKey: ["explain", path, settled],
    queryFn: ({ signal }) => api.post("/api/v1/explain", { body: { file: { path, text: settled } }, signal }),
    staleTime: Infinity,
    gcTime: 60_000,
    ...WHILE_BUSY,
    placeholderData: (before) => before,
  });
  const { data } = found;
  const fresh = found.isSuccess && !found.isPlaceholderData && settled === text;
  return useMemo(() => {
    const nodes = new Map((data?.nodes ?? []).map((each) => [each.name, each]));
    const columns = new Map<string, readonly Column[]>();
    for (const [name, each] of nodes) if (each.columns) columns.set(name, each.columns);
    return { nodes, columns, problems: fresh ? (data?.problems ?? []) : [] };
  }, [data, fresh]);
}

type Checked = ReturnType<typeof useChecked>;

/** What is wrong with the text, each thing once; what only Spark finds comes later than the rest. */
function useMistakes({ error, data }: Checked, further: Parameters<typeof mistakesIn>[0]): Mistake[] {
  return useMemo(() => {
    const found = error ? mistakesOf(error) : mistakesIn(data?.warnings ?? []);
    const said = new Set(found.map(({ line, text }) => `${line} ${text}`));
    return [...found, ...mistakesIn(further).filter(({ line, text }) => !said.has(`${line} ${text}`))];
  }, [error, data, further]);
}

function byNode(graph: Draft, mistakes: readonly Mistake[]): ReadonlyMap<string, { count: number; error: boolean }> {
  const found = new Map<string, { count: number; error: boolean }>();
  for (const { line, severity } of mistakes) {
    const name = nodeAt(graph, line)?.name;
    if (name === undefined) continue;
    const before = found.get(name);
    found.set(name, { count: (before?.count ?? 0) + 1, error: (before?.error ?? false) || severity === "error" });
  }
  // A node that reads nothing, or what is not there, has no line to draw that says so.
  for (const node of graph.nodes) {
    if (node.kind !== "source" && node.inputs.some((input) => !nodeOfInput(graph, input)) && !found.has(node.name)) found.set(node.name, { count: 1, error: true });
  }
  return found;
}
