/** A small line of numbers over the last hour, with what it shows in words. */
import { path } from "../logic/spark";

const WIDTH = 88;
const HEIGHT = 22;

interface Props {
  /** Places between 0 and 1, and values. */
  points: readonly (readonly [number, number])[];
  label: string;
}

export function Sparkline({ points, label }: Props) {
  if (points.length < 2) return <span className="spark" />;
  const { line, area } = path(points, WIDTH, HEIGHT);
  return (
    <svg className="spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label}>
      <path className="spark-area" d={area} />
      <path className="spark-line" d={line} />
    </svg>
  );
}
