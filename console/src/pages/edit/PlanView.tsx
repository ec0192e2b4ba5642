/** A plan: for each pipeline what is done, why, what it costs, and every change with its own cost. */
import type { Plan } from "../../api/types";
import { costOf, shown } from "../../logic/plan";
import { Table } from "../../ui/Listed";

export function PlanView({ plan }: { plan: Plan }) {
  return (
    <div className="plan">
      {!plan.changes && <p>Nothing would change.</p>}
      {plan.steps.filter(({ action }) => action !== "unchanged").map((step) => {
        const cost = costOf(step.cost);
        const { loses, stages, flow } = step;
        return (
          <article key={step.name}>
            <h3>{step.action} {step.name}</h3>
            <p>{step.reason}</p>
            {step.action !== "create" && <p><span className={`badge ${cost.group}`}>{cost.title}</span> {cost.words}</p>}
            {loses.length > 0 && <p className="note bad">The state of <b>{loses.join(", ")}</b> is lost: what was counted there begins anew.</p>}
            {stages.length > 0 && <p className="quiet">{stages.join(" → ")}</p>}
            {flow.length > 0 && (
              <pre className="flow-diff" tabIndex={0} aria-label={`How rows flow in ${step.name}`}>
                {flow.map((line, index) => <span key={index} className={line.startsWith("+") ? "comes" : line.startsWith("-") ? "goes" : ""}>{`${line}\n`}</span>)}
              </pre>
            )}
            {step.changes.length > 0 && (
              <Table
                caption={`Changes of ${step.name}`} items={step.changes} id={({ path }) => path}
                columns={[
                  { title: "Where", cell: ({ path }) => <code>{path}</code> },
                  { title: "Before", cell: ({ before }) => <code>{shown(before)}</code> },
                  { title: "After", cell: ({ after }) => <code>{shown(after)}</code> },
                  { title: "Cost", cell: (each) => <span className={`badge ${costOf(each.cost).group}`}>{costOf(each.cost).title}</span> },
                ]}
              />
            )}
          </article>
        );
      })}
    </div>
  );
}
