/** History as charts, with a table behind each. */
import { useState } from "react";
import type { Point } from "../../../api/types";
import { type ChartData, charts, inWords } from "../../../logic/series";
import { utc } from "../../../logic/format";
import { Chart } from "./Chart";
import "./charts.css";

interface Props {
  points: readonly Point[];
  from: number;
  to: number;
}

export default function Charts({ points, from, to }: Props) {
  const found = charts(points);
  const begin = beginning(points, from, to);
  const wrong = points.reduce((sum, { unbalanced }) => sum + unbalanced, 0);
  if (points.length === 0) return <p className="card quiet">No batch has finished in this time, so there is nothing to draw. Choose a longer time, or start the pipeline.</p>;
  return (
    <>
      {wrong > 0 && <p className="note bad">The rows of {wrong} batches in this time do not add up. Look at the ledger.</p>}
      <div className="charts">
        {found.map((data) => (
          <figure key={data.id} className="card">
            <figcaption><h3>{data.title}</h3></figcaption>
            <div role="img" aria-label={inWords(data)}><Chart data={data} from={begin / 1000} to={to / 1000} /></div>
            <Behind data={data} />
          </figure>
        ))}
      </div>
    </>
  );
}

const SHORTEST_MS = 5 * 60_000;

/** A pipeline younger than the time shown fills the charts from its first batch on. */
function beginning(points: readonly Point[], from: number, to: number): number {
  const first = points[0];
  return first ? Math.max(from, Math.min(Date.parse(first.at) - first.seconds * 1000, to - SHORTEST_MS)) : from;
}

/** The table is made when it is opened. */
function Behind({ data }: { data: ChartData }) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>Table</summary>
      {open && <Rows data={data} />}
    </details>
  );
}

function Rows({ data: { title, times, series, write } }: { data: ChartData }) {
  const rows = times.map((time, index) => ({ time, values: series.map(({ values }) => values[index]) })).reverse();
  return (
    <div className="behind" tabIndex={0}>
      <table>
        <caption className="unseen">{title}</caption>
        <thead><tr><th scope="col">Time</th>{series.map(({ label }) => <th key={label} scope="col" className="right">{label}</th>)}</tr></thead>
        <tbody>
          {rows.map(({ time, values }) => (
            <tr key={time}><td className="tight">{utc(time * 1000)}</td>{values.map((value, index) => <td key={index} className="right">{write(value)}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
