/** One chart. The library draws on a canvas, so colours are read from the styles and the legend is ours. */
import { useEffect, useRef, useState } from "react";
import UPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { serverNow } from "../../../api/client";
import { clock } from "../../../logic/format";
import type { ChartData } from "../../../logic/series";

const HEIGHT = 170;
const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6"];

export function Chart({ data, from, to }: { data: ChartData; from: number; to: number }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot | null>(null);
  const [pointed, setPointed] = useState<number | null>(null);
  const theme = useThemeChanges();
  const shape = data.series.map(({ label }) => label).join("\n");
  const range = useRef<[number, number]>([from, to]);
  const first = useRef(data);
  useEffect(() => {
    range.current = [from, to];
    first.current = data;
  });

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const made = new UPlot(options(element, first.current, () => range.current, setPointed), aligned(first.current), element);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, theme]);

  useEffect(() => {
    plot.current?.setData(aligned(data));
  }, [data, from, to]);

  const place = pointed ?? data.times.length - 1;
  const time = data.times[place];
  return (
    <>
      <div ref={box} className="plot" />
      <ul className="legend number" aria-hidden="true">
        {data.series.map(({ label, values }, index) => (
          <li key={label}><i className={`swatch s${(index % COLOURS.length) + 1}`} />{label} <b>{data.write(values[place])}</b></li>
        ))}
        <li className="quiet">{pointed !== null && time !== undefined ? clock(time * 1000, serverNow()) : ""}</li>
      </ul>
    </>
  );
}

function aligned(data: ChartData): UPlot.AlignedData {
  return [data.times, ...data.series.map(({ values }) => values)];
}

function options(
  element: HTMLElement, data: ChartData, range: () => [number, number], point: (index: number | null) => void,
): UPlot.Options {
  const quiet = colour(element, "--quiet");
  const line = colour(element, "--line");
  const axis = { stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui" };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    scales: { x: { range }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
    axes: [
      { ...axis, size: 28, values: ticks },
      { ...axis, size: 64, values: (_, values) => values.map((value) => data.write(value)) },
    ],
    series: [
      {},
      ...data.series.map(({ label }, index) => ({
        label, stroke: colour(element, COLOURS[index % COLOURS.length] ?? "--c1"), width: 1.6,
        ...(index === 0 ? { fill: faint(colour(element, "--c1")) } : {}), points: { show: data.times.length < 3, size: 5 }, spanGaps: false,
      })),
    ],
    hooks: { setCursor: [(plot) => point(plot.cursor.idx ?? null)] },
  };
}

const HOUR = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** Hours, and the day where it begins. */
function ticks(_: UPlot, values: number[]): string[] {
  return values.map((value) => {
    const date = new Date(value * 1000);
    return date.getHours() === 0 && date.getMinutes() === 0 ? DAY.format(date) : HOUR.format(date);
  });
}

/** A colour of the styles as the canvas understands it. */
function colour(element: HTMLElement, name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  element.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function faint(found: string): string {
  return found.replace("rgb(", "rgba(").replace(")", ", 0.1)");
}

/** Another number whenever light becomes dark or the other way round. */
function useThemeChanges(): number {
  const [changes, setChanges] = useState(0);
  useEffect(() => {
    const next = () => setChanges((now) => now + 1);
    const query = matchMedia("(prefers-color-scheme: dark)");
    query.addEventListener("change", next);
    addEventListener("penstock-theme", next);
    return () => {
      query.removeEventListener("change", next);
      removeEventListener("penstock-theme", next);
    };
  }, []);
  return changes;
}
