/** The pipeline as it is drawn: nodes to move and connect, what is wrong with each, and the columns on the edges. */
import {
  Background, type Connection, Controls, type Edge, type EdgeChange, EdgeLabelRenderer, type EdgeProps, getBezierPath, Handle, type Node, type NodeChange,
  type NodeProps, Position, ReactFlow, ReactFlowProvider, useReactFlow,
} from "@xyflow/react";
import "@xyflow/react/dist/base.css";
import { useMemo, useState } from "react";
import { type BuildNode, type Draft, mayConnect, nodeOfInput } from "../../logic/build/model";
import { type Placed, places } from "../../logic/graph";
import { plural } from "../../logic/format";
import { Icon } from "../../ui/Icon";
import "../pipeline/graph/graph.css";
import { DRAGGED } from "./Palette";

const WIDTH = 176;
const HEIGHT = 56;
const SAID = {
  "node.a11yDescription.default": "Press enter or space to choose this node, delete to remove it.",
  "edge.a11yDescription.default": "Press enter or space to choose this edge, delete to remove it.",
};

export interface Column {
  name: string;
  type: string;
}

interface Props {
  draft: Draft;
  chosen: string | null;
  /** How many problems each node has. */
  problems: ReadonlyMap<string, { count: number; error: boolean }>;
  /** What leaves each node, as far as it is known. */
  columns: ReadonlyMap<string, readonly Column[]>;
  choose: (name: string | null) => void;
  connect: (from: string, to: string) => void;
  cut: (from: string, to: string) => void;
  remove: (name: string) => void;
  /** A component was dropped; what is returned is the name of the new node. */
  drop: (kind: string, component: string) => string;
  columnsAsked: (name: string) => void;
}

type Shown = Node<{ node: BuildNode; down: boolean; problems: { count: number; error: boolean } | undefined }, "piece">;
type Wire = Edge<{ columns: readonly Column[] | undefined; ask: () => void }, "wire">;

const NODES = { piece: Piece };
const WIRES = { wire: WireLine };

export default function Canvas(props: Props) {
  return <ReactFlowProvider><Board {...props} /></ReactFlowProvider>;
}

function Board({ draft, chosen, problems, columns, choose, connect, cut, remove, drop, columnsAsked }: Props) {
  const flow = useReactFlow();
  const [moved, setMoved] = useState<ReadonlyMap<string, Placed>>(new Map());
  const [wire, setWire] = useState<string | null>(null);
  const [turn, setTurn] = useState(0);
  const [down] = useState(() => matchMedia("(max-width: 699px)").matches);
  const placed = useMemo(() => positions(draft, moved, down), [draft, moved, down]);
  const nodes: Shown[] = draft.nodes.map((node) => ({
    id: node.name, type: "piece", position: placed.get(node.name) ?? { x: 0, y: 0 }, width: WIDTH, height: HEIGHT, selected: chosen === node.name,
    data: { node, down, problems: problems.get(node.name) },
    ariaLabel: `${node.kind} ${node.name}, ${node.component ?? "nothing yet"}${problems.has(node.name) ? `, ${plural(problems.get(node.name)?.count ?? 0, "problem")}` : ""}`,
  }));
  const edges: Wire[] = draft.nodes.flatMap((node) => node.inputs.flatMap((input) => {
    const from = nodeOfInput(draft, input);
    if (!from) return [];
    const id = `${input}→${node.name}`;
    return [{
      id, type: "wire" as const, source: from.node.name, sourceHandle: from.output, target: node.name, selected: wire === id,
      data: { columns: columns.get(input), ask: () => columnsAsked(from.node.name) }, ariaLabel: `from ${input} to ${node.name}`,
    }];
  }));
  const onNodes = (changes: NodeChange<Shown>[]) => {
    for (const change of changes) {
      if (change.type === "position" && change.position) {
        const { id, position } = change;
        setMoved((now) => new Map(now).set(id, position));
      } else if (change.type === "select" && change.selected) {
        choose(change.id);
        setWire(null);
      } else if (change.type === "remove") remove(change.id);
    }
  };
  const onEdges = (changes: EdgeChange<Wire>[]) => {
    for (const change of changes) {
      const edge = "id" in change ? edges.find(({ id }) => id === change.id) : undefined;
      if (!edge) continue;
      if (change.type === "select") setWire(change.selected ? edge.id : null);
      if (change.type === "remove") cut(edge.id.split("→")[0] ?? "", edge.target);
    }
  };
  const input = ({ source, sourceHandle }: Connection | Edge) => (sourceHandle ? `${source}.${sourceHandle}` : source);
  return (
    <div
      className="board"
      onDragOver={(event) => {
        if (!event.dataTransfer.types.includes(DRAGGED)) return;
        event.preventDefault();
        event.dataTransfer.dropEffect = "copy";
      }}
      onDrop={(event) => {
        const found = event.dataTransfer.getData(DRAGGED);
        if (!found) return;
        event.preventDefault();
        const [kind = "", component = ""] = JSON.parse(found) as string[];
        const { x, y } = flow.screenToFlowPosition({ x: event.clientX, y: event.clientY });
        const name = drop(kind, component);
        setMoved((now) => new Map([...placed, ...now]).set(name, { x: x - WIDTH / 2, y: y - HEIGHT / 2 }));
      }}
    >
      <ReactFlow
        key={turn} nodes={nodes} edges={edges} nodeTypes={NODES} edgeTypes={WIRES} fitView fitViewOptions={{ maxZoom: 1.05, padding: 0.12 }} minZoom={0.2} maxZoom={2}
        onNodesChange={onNodes} onEdgesChange={onEdges} onPaneClick={() => { choose(null); setWire(null); }}
        onConnect={(made) => connect(input(made), made.target)} isValidConnection={(made) => mayConnect(draft, input(made), made.target)}
        deleteKeyCode={["Delete", "Backspace"]} zoomOnScroll={false} panOnScroll preventScrolling proOptions={{ hideAttribution: true }} ariaLabelConfig={SAID}
        connectionRadius={36}
      >
        <Background gap={20} />
        <Controls showInteractive={false} orientation="horizontal" />
      </ReactFlow>
      {draft.nodes.length === 0 && <p className="board-empty quiet">Drag a source here, or press one in the list.</p>}
      {moved.size > 0 && <button type="button" className="tidy" onClick={() => { setMoved(new Map()); setTurn(turn + 1); }}>Tidy up</button>}
    </div>
  );
}

/** Where nodes stand: as somebody has put them, else as the layout does. */
function positions(draft: Draft, moved: ReadonlyMap<string, Placed>, down: boolean): ReadonlyMap<string, Placed> {
  const plain = draft.nodes.map((node) => ({
    ...node, component: node.component ?? "", inputs: node.inputs.flatMap((input) => nodeOfInput(draft, input)?.node.name ?? []), partOf: null, config: {},
  }));
  const found = places(plain, down, { width: WIDTH, height: HEIGHT, apart: down ? 44 : 84 });
  if (moved.size === 0) return found;
  const low = Math.max(0, ...[...moved.values()].map(({ y }) => y));
  for (const node of draft.nodes) {
    const own = moved.get(node.name);
    const before = node.inputs.map((input) => moved.get(nodeOfInput(draft, input)?.node.name ?? "")).find((each) => each !== undefined);
    found.set(node.name, own ?? (before ? { x: before.x + WIDTH + 90, y: before.y } : { x: 0, y: low + HEIGHT + 40 }));
  }
  return found;
}

function Piece({ data: { node, down, problems }, selected }: NodeProps<Shown>) {
  const outputs = node.outputs.length > 0 ? node.outputs : [null];
  return (
    <div className={`part piece-node of-${node.kind}${selected ? " chosen" : ""}${problems?.error ? " wrong" : ""}`}>
      {node.kind !== "source" && <Handle type="target" position={down ? Position.Top : Position.Left} />}
      <p className="part-name">
        <Icon component={node.component} kind={node.kind} />
        <span><b title={node.name}>{node.name}</b><small>{node.component ?? "nothing yet"}</small></span>
        {problems && <span className={`badge ${problems.error ? "attention" : "catching"}`} title={plural(problems.count, "problem")}>{problems.error ? "✕" : "▲"} {problems.count}</span>}
      </p>
      {node.kind !== "sink" && outputs.map((output, index) => (
        <Handle key={output ?? ""} id={output} type="source" position={down ? Position.Bottom : Position.Right} title={output ?? undefined} style={{ [down ? "left" : "top"]: `${((index + 1) * 100) / (outputs.length + 1)}%` }} />
      ))}
    </div>
  );
}

function WireLine({ sourceX, sourceY, targetX, targetY, sourcePosition, targetPosition, selected, data, sourceHandleId }: EdgeProps<Wire>) {
  const [path, x, y] = getBezierPath({ sourceX, sourceY, targetX, targetY, sourcePosition, targetPosition });
  const columns = data?.columns;
  return (
    <>
      <path className="wire-hold react-flow__edge-interaction" d={path} />
      <path className={`wire${selected ? " chosen" : ""}`} d={path} />
      {(columns ?? sourceHandleId) && (
        <EdgeLabelRenderer>
          <button
            type="button" className="flow-label wire-label nodrag nopan" style={{ transform: `translate(-50%, -50%) translate(${x}px, ${y}px)` }} onClick={data?.ask}
            title={columns?.map(({ name, type }) => `${name} ${type}`).join("\n")}
          >
            {[sourceHandleId, columns && plural(columns.length, "column")].filter(Boolean).join(" · ")}
          </button>
        </EdgeLabelRenderer>
      )}
    </>
  );
}
