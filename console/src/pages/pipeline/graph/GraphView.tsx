/** The graph is the pipeline: a node is its name, kind and one or two live figures; an edge is as thick as its flow. */
import { Background, Controls, Handle, type Node, type NodeProps, Position, ReactFlow, type ReactFlowInstance } from "@xyflow/react";
import "@xyflow/react/dist/base.css";
import { type RefObject, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Link } from "react-router";
import type { GraphNode } from "../../../api/types";
import { count, rate } from "../../../logic/format";
import { type Context, type Figures, figures, leaving, NODE_HEIGHT, NODE_WIDTH, places, slowest, stateWords } from "../../../logic/graph";
import { Icon } from "../../../ui/Icon";
import { Flow, type FlowEdge } from "./Flow";
import { NodePanel } from "./NodePanel";
import "./graph.css";

interface Props {
  nodes: readonly GraphNode[];
  context: Context;
}

type Drawn = Node<{ node: GraphNode; figures: Figures; slowest: boolean; down: boolean; pipeline: string }, "part">;

const KINDS = { part: Part };
const EDGES = { flow: Flow };
const SAID = {
  "node.a11yDescription.default": "Press enter or space to see more of this node.",
  "node.a11yDescription.keyboardDisabled": "Press enter or space to see more of this node.",
  "edge.a11yDescription.default": "",
};
const MOST_ZOOM = 1.1;
/** So many nodes are seen at a glance, and need no buttons to look closer. */
const FEW = 8;
const FIT = { maxZoom: MOST_ZOOM, padding: 0.04 };
const NARROW = "(max-width: 699px)";

export default function GraphView({ nodes, context }: Props) {
  const down = useNarrow();
  const [chosen, setChosen] = useState<string | null>(null);
  const area = useRef<HTMLDivElement>(null);
  const width = useWidth(area);
  const [flow, setFlow] = useState<ReactFlowInstance<Drawn, FlowEdge> | null>(null);
  useEffect(() => {
    // What is drawn follows its frame, as when the panel beside it opens.
    if (flow && width > 0) void flow.fitView(FIT);
  }, [flow, width]);
  const placed = useMemo(() => places(nodes, down), [nodes, down]);
  const slow = slowest(nodes, context);
  const known = useMemo(() => new Map(nodes.map((node) => [node.name, node])), [nodes]);
  if (nodes.length === 0) return <p className="quiet">The graph of this version cannot be drawn: it was written for another version of Penstock.</p>;
  const drawn: Drawn[] = nodes.map((node) => {
    const found = figures(node, nodes, context);
    const said = [`${node.kind} ${node.name}, ${node.component}`, ...(found.rows === null ? [] : [`${rate(found.rows)} rows`]), ...found.lines];
    return {
      id: node.name, type: "part", position: placed.get(node.name) ?? { x: 0, y: 0 }, width: NODE_WIDTH, height: NODE_HEIGHT, handles: handles(down),
      data: { node, figures: found, slowest: slow === node.name, down, pipeline: context.pipeline.name },
      ariaLabel: said.join(", "), selected: chosen === node.name,
    };
  });
  const edges: FlowEdge[] = nodes.flatMap((node) => node.inputs.map((input) => {
    const from = known.get(input);
    const rows = node.kind === "sink" ? leaving(node, nodes, context.samples) : from ? leaving(from, nodes, context.samples) : null;
    return {
      id: `${input}→${node.name}`, type: "flow", source: input, target: node.name, data: { rows, slow: slow === node.name }, focusable: false,
      ariaLabel: `from ${input} to ${node.name}${rows === null ? "" : `, ${rate(rows)} rows`}`,
    };
  }));
  const right = Math.max(1, ...[...placed.values()].map(({ x }) => x + NODE_WIDTH));
  const low = Math.max(...[...placed.values()].map(({ y }) => y + NODE_HEIGHT));
  const height = Math.min(620, Math.max(170, 90 + low * Math.min(MOST_ZOOM, width > 0 ? (width * 0.92) / right : 1)));
  const state = stateWords(context.pipeline);
  const node = chosen === null ? undefined : known.get(chosen);
  return (
    <div className="graph">
      <div className="graph-area" ref={area} style={{ minHeight: height }}>
        <ReactFlow
          key={`${String(down)} ${[...known.keys()].join()}`} onInit={setFlow} nodes={drawn} edges={edges} nodeTypes={KINDS} edgeTypes={EDGES} fitView fitViewOptions={FIT}
          minZoom={0.2} maxZoom={2} nodesDraggable={false} nodesConnectable={false} edgesFocusable={false} elementsSelectable
          zoomOnScroll={false} preventScrolling={false} panOnDrag={!down} proOptions={{ hideAttribution: true }} deleteKeyCode={null} ariaLabelConfig={SAID}
          onNodeClick={(_, { id }) => setChosen(id)} onPaneClick={() => setChosen(null)}
          onNodesChange={(changes) => {
            for (const change of changes) if (change.type === "select" && change.selected) setChosen(change.id);
          }}
        >
          <Background gap={22} />
          {nodes.length > FEW && <Controls showInteractive={false} orientation="horizontal" />}
        </ReactFlow>
        {state && <p className="graph-note number">{state}</p>}
      </div>
      {node && <NodePanel node={node} nodes={nodes} context={context} close={() => setChosen(null)} />}
    </div>
  );
}

/** Where edges begin and end, told beforehand so that they need not be measured. */
function handles(down: boolean) {
  const [x, y] = [NODE_WIDTH / 2, NODE_HEIGHT / 2];
  return down
    ? [{ type: "target" as const, position: Position.Top, x, y: 0 }, { type: "source" as const, position: Position.Bottom, x, y: NODE_HEIGHT }]
    : [{ type: "target" as const, position: Position.Left, x: 0, y }, { type: "source" as const, position: Position.Right, x: NODE_WIDTH, y }];
}

function Part({ data: { node, figures: found, slowest: slow, down, pipeline }, selected }: NodeProps<Drawn>) {
  const to = (part: string) => `/pipelines/${encodeURIComponent(pipeline)}/${part}`;
  return (
    <div className={`part of-${node.kind}${selected ? " chosen" : ""}${slow || found.waits ? " slow" : ""}`}>
      <Handle type="target" position={down ? Position.Top : Position.Left} isConnectable={false} />
      <p className="part-name">
        <Icon component={node.component} kind={node.kind} />
        <span><b title={node.name}>{node.name}</b><small>{node.component}</small></span>
        {found.rows !== null && <span className="part-rate number">{rate(found.rows)}</span>}
      </p>
      <p className="aside number">
        {found.lines.slice(0, found.late + found.dead > 0 ? 1 : 2).map((line) => <span key={line}>{line}</span>)}
        {found.late > 0 && <Link className="badge catching nodrag" to={to("late")}>{count(found.late)} late</Link>}
        {found.dead > 0 && <Link className="badge attention nodrag" to={to("dead")}>{count(found.dead)} dead</Link>}
      </p>
      {found.share !== null && (
        <span className="meter" title={`${Math.round(found.share * 100)} % of the time of a batch`}><i style={{ width: `${Math.max(2, found.share * 100)}%` }} /></span>
      )}
      <Handle type="source" position={down ? Position.Bottom : Position.Right} isConnectable={false} />
    </div>
  );
}

function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(() => matchMedia(NARROW).matches);
  useEffect(() => {
    const query = matchMedia(NARROW);
    const look = () => setNarrow(query.matches);
    query.addEventListener("change", look);
    return () => query.removeEventListener("change", look);
  }, []);
  return narrow;
}

/** How wide an element is, and becomes. */
function useWidth(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const found = element.current;
    if (!found) return;
    const watch = new ResizeObserver(() => setWidth(found.clientWidth));
    watch.observe(found);
    return () => watch.disconnect();
  }, [element]);
  return width;
}
