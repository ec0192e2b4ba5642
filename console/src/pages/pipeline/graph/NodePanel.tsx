/** What is known of one node, beside the graph. */
import { useQuery } from "@tanstack/react-query";
import { api, Refusal } from "../../../api/client";
import { ColumnsKnown } from "../../../ui/ColumnsKnown";
import { type Context, figures, leaving } from "../../../logic/graph";
import type { GraphNode } from "../../../api/types";
import { bytes, exact, rate, span, utc } from "../../../logic/format";
import { rateOf } from "../../../logic/rates";
import { asYaml } from "../../../logic/yaml";

interface Props {
  node: GraphNode;
  nodes: readonly GraphNode[];
  context: Context;
  close: () => void;
}

export function NodePanel({ node, nodes, context, close }: Props) {
  const facts = factsOf(node, nodes, context);
  return (
    <aside className="node-panel" aria-label={`${node.kind} ${node.name}`}>
      <div className="section-head">
        <h2>{node.name} <span className="quiet">{node.kind} {node.component}</span></h2>
        <button type="button" className="plain" onClick={close} aria-label="Close">✕</button>
      </div>
      {facts.length > 0 && (
        <dl className="number">
          {facts.map(([title, value]) => <div key={title}><dt>{title}</dt><dd>{value}</dd></div>)}
        </dl>
      )}
      <h3>Columns</h3>
      <Columns pipeline={context.pipeline} node={node.name} />
      <h3>As the file has it</h3>
      <pre className="config" tabIndex={0}>{asYaml(node.config)}</pre>
    </aside>
  );
}

/** Spark is asked once for each version, when somebody first looks. */
function Columns({ pipeline: { name, version }, node }: { pipeline: Context["pipeline"]; node: string }) {
  const found = useQuery({
    queryKey: ["explained", name, version],
    queryFn: () => api.get("/api/v1/pipelines/{name}/explain", { path: { name } }),
    staleTime: Infinity,
    retry: false,
  });
  if (found.isPending) return <p className="quiet" role="status">Spark is asked…</p>;
  if (found.error) return <p className="quiet">{found.error instanceof Refusal ? found.error.problem.title : "They could not be found out."} <button type="button" onClick={() => void found.refetch()}>Try again</button></p>;
  return <ColumnsKnown nodes={new Map(found.data.nodes.map((each) => [each.name, each]))} name={node} />;
}

function factsOf(node: GraphNode, nodes: readonly GraphNode[], context: Context): [string, string][] {
  const status = context.pipeline.status;
  const found: [string, string | null | undefined][] = [["Reads", node.inputs.join(", ")]];
  if (status) {
    const { samples, last } = context;
    const mark = status.watermarks[node.name];
    const of = (counts: Record<string, number>) => (counts[node.name] === undefined ? null : exact(counts[node.name]));
    found.push(
      ["Rows in, this run", of(status.rows_in)],
      ["Rows in now", node.kind === "source" ? rate(rateOf(samples, "rows_in", node.name)) : null],
      ["Rows out, this run", of(status.rows_out)],
      ["Rows out now", node.kind === "source" ? null : words(leaving(node, nodes, samples))],
      ["Late", of(status.rows_late)],
      ["Dead", of(status.rows_dead)],
      ["Filtered", of(status.rows_filtered)],
      ["Watermark", mark ? utc(mark) : null],
      ["Time for a batch", last?.sinkMs[node.name] === undefined ? null : span((last.sinkMs[node.name] ?? 0) / last.span / 1000)],
      ["Part of the batch", share(figures(node, nodes, context).share)],
      ["Tried again", of(status.sink_retries)],
      ["State of the pipeline", node.kind === "step" && status.state_bytes ? bytes(status.state_bytes) : null],
    );
  }
  return found.filter((each): each is [string, string] => Boolean(each[1]));
}

function share(value: number | null): string | null {
  return value === null ? null : `${Math.round(value * 100)} %`;
}

function words(rows: number | null): string | null {
  return rows === null ? null : rate(rows);
}
