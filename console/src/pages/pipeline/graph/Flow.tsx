/** An edge: as thick as its flow, and moving while rows flow. */
import { EdgeLabelRenderer, type Edge, type EdgeProps, getBezierPath } from "@xyflow/react";
import { rate } from "../../../logic/format";
import { thickness } from "../../../logic/graph";

export type FlowEdge = Edge<{ rows: number | null; slow: boolean; note?: string | undefined }, "flow">;

export function Flow({ sourceX, sourceY, targetX, targetY, sourcePosition, targetPosition, data }: EdgeProps<FlowEdge>) {
  const [path, x, y] = getBezierPath({ sourceX, sourceY, targetX, targetY, sourcePosition, targetPosition });
  const rows = data?.rows ?? null;
  const width = thickness(rows);
  const label = rows === null ? data?.note : rate(rows);
  return (
    <>
      <path className={`flow-bed${data?.slow ? " slow" : ""}`} d={path} style={{ strokeWidth: width + 1.5 }} />
      {rows !== null && rows > 0 && <path className="flow-rows" d={path} style={{ strokeWidth: Math.max(1.5, width * 0.45), animationDuration: `${pace(rows)}s` }} />}
      {label && (
        <EdgeLabelRenderer>
          <span className="flow-label number" style={{ transform: `translate(-50%, -50%) translate(${x}px, ${y}px)` }}>{label}</span>
        </EdgeLabelRenderer>
      )}
    </>
  );
}

/** Seconds for one stroke to pass; ten times as many rows move half as long. */
function pace(rows: number): number {
  return Math.max(0.35, 2.4 / 1.6 ** Math.log10(1 + rows));
}
