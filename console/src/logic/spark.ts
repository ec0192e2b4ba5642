/** From points to the path of a small line. */

export function path(points: readonly (readonly [number, number])[], width: number, height: number): { line: string; area: string } {
  const most = Math.max(...points.map(([, value]) => value), Number.MIN_VALUE);
  const placed = points.map(([at, value]) => [at * width, height - 1 - (value / most) * (height - 2)] as const);
  const line = placed.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");
  const first = placed[0]?.[0] ?? 0;
  const last = placed.at(-1)?.[0] ?? 0;
  return { line, area: `${line}L${last.toFixed(1)},${height}L${first.toFixed(1)},${height}Z` };
}

interface Brief {
  at: string;
  seconds: number;
  rowsIn: number;
}

/** Rows per second over a time. Where there is no batch there are no rows, so gaps go down to nothing. */
export function rates(points: readonly Brief[], since: number, until: number): [number, number][] {
  const found: [number, number][] = [];
  const step = 1000 * Math.max(...points.map(({ seconds }) => seconds));
  let before: number | null = null;
  for (const point of points) {
    const at = Date.parse(point.at);
    const place = (time: number) => Math.min(1, Math.max(0, (time - since) / (until - since)));
    if (before === null ? at - since > 2 * step : at - before > 2.5 * step) {
      if (before !== null) found.push([place(before + step), 0]);
      found.push([place(at - step), 0]);
    }
    found.push([place(at), point.rowsIn / point.seconds]);
    before = at;
  }
  return found;
}
