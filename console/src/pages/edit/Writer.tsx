/** Writing a pipeline file: mistakes at once, then the plan with its costs, then making it so. */
import { lazy, Suspense, useMemo, useState } from "react";
import type { Plan } from "../../api/types";
import { plural } from "../../logic/format";
import { mistakesIn, mistakesOf } from "../../logic/mistakes";
import { loses } from "../../logic/plan";
import { Confirm } from "../../ui/Dialog";
import { Loading, Mistakes, Refused } from "../../ui/states";
import "./edit.css";
import { draftOf, keepDraft } from "./drafts";
import { useApply, useChecked, useGuard, usePlan } from "./editing";
import { PlanView } from "./PlanView";
import { RunBeside } from "./RunBeside";

const CodeEditor = lazy(() => import("./CodeEditor"));

interface Props {
  /** The name of the file; its ending says what it is written in. */
  path: string;
  initial: string;
  /** What unapplied changes are kept under. */
  draft: string;
  /** The pipeline that is edited; none for a new one. */
  name?: string;
}

export function Writer({ path, initial, draft, name }: Props) {
  const [text, setText] = useState(() => draftOf(draft) ?? initial);
  const [begin, setBegin] = useState(text);
  const [asking, setAsking] = useState(false);
  const files = useMemo(() => [{ path, text }], [path, text]);
  const checked = useChecked(path, text);
  const plan = usePlan(files);
  const apply = useApply({ files, after: () => setAsking(false), applied: () => keepDraft(draft, initial, initial) });
  const mistakes = useMemo(
    () => (checked.error ? mistakesOf(checked.error) : mistakesIn(checked.data?.warnings ?? [])), [checked.error, checked.data]);
  const changed = text !== initial || name === undefined;
  useGuard(text !== initial && !apply.isSuccess);
  const change = (next: string) => {
    setText(next);
    keepDraft(draft, next, initial);
    plan.reset();
  };
  const discard = () => {
    change(initial);
    setBegin(initial);
  };
  const other = name !== undefined && plan.data?.steps.find((step) => step.name !== name);
  const ask = (found: Plan) => (loses(found) ? setAsking(true) : apply.mutate({ plan: found, target: null }));
  return (
    <div className="writer">
      <section className="write" aria-label="File">
        <Suspense fallback={<Loading what="the editor" />}>
          <CodeEditor key={begin} text={text} label={`Text of ${path}`} mistakes={mistakes} change={change} />
        </Suspense>
      </section>
      <section className="judge" aria-label="Plan">
        {begin !== initial && (
          <p className="note">This is what you wrote before and have not applied. <button type="button" onClick={discard}>Throw it away</button></p>
        )}
        <p role="status" className="verdict">
          {checked.isFetching ? "Checking…" : checked.error ? (mistakes.length > 0 ? `${plural(mistakes.length, "problem")}` : "") : checked.data ? "The file is sound" + (mistakes.length > 0 ? `, with ${plural(mistakes.length, "warning")}` : "") : ""}
        </p>
        {checked.error ? (mistakes.length > 0 ? <Mistakes error={checked.error} /> : <Refused error={checked.error} />) : null}
        {!checked.error && (checked.data?.warnings.length ?? 0) > 0 && (
          <ul className="quiet">{checked.data?.warnings.map(({ message, hint }, index) => <li key={index}>{message} {hint}</li>)}</ul>
        )}
        <div className="buttons">
          <button type="button" className={plan.data ? "" : "primary"} disabled={!changed || plan.isPending || Boolean(checked.error)} onClick={() => plan.mutate(null)}>
            {plan.isPending ? "Planning…" : "Plan"}
          </button>
          {plan.data?.changes && name !== undefined && !other && <RunBeside name={name} file={{ path, text }} plan={plan.data} begun={() => keepDraft(draft, initial, initial)} />}
          {plan.data?.changes && (
            <button type="button" className="primary" disabled={apply.isPending} onClick={() => plan.data && ask(plan.data)}>
              {apply.isPending ? "Applying…" : name === undefined ? "Create and start" : "Apply"}
            </button>
          )}
        </div>
        {plan.error && !checked.error && <Mistakes error={plan.error} />}
        {other && <p className="note">The file names another pipeline, {other.name}. {name} stays as it is.</p>}
        {plan.data ? <PlanView plan={plan.data} /> : <p className="quiet">Plan shows what would change and what that costs, before anything is done.</p>}
      </section>
      {asking && plan.data && (
        <Confirm title="Apply, and lose state?" action="Apply" word={name ?? plan.data.steps[0]?.name} busy={apply.isPending} confirm={() => plan.data && apply.mutate({ plan: plan.data, target: null })} close={() => setAsking(false)}>
          <PlanView plan={plan.data} />
        </Confirm>
      )}
    </div>
  );
}
