/** Small drawings by the name of a component, or by its kind where there is none of its own. */

const DRAWN: Record<string, string> = {
  source: "M2 8h8M7 5l3 3-3 3M13.5 3v10",
  step: "M2.5 5.5h11M2.5 10.5h11M6 3v5M10 8v5",
  sink: "M3 4c0-1.1 2.2-2 5-2s5 .9 5 2-2.2 2-5 2-5-.9-5-2zM3 4v8c0 1.1 2.2 2 5 2s5-.9 5-2V4M3 8c0 1.1 2.2 2 5 2s5-.9 5-2",
  files: "M4 2h5l3 3v9H4zM9 2v3h3",
  kafka: "M2.5 4h11M2.5 8h11M2.5 12h7M12 10.5l2 1.5-2 1.5",
  generator: "M8 1.5v3.2M8 11.3v3.2M1.5 8h3.2M11.3 8h3.2M3.7 3.7l2 2M10.3 10.3l2 2M12.3 3.7l-2 2M5.7 10.3l-2 2",
  memory: "M4.5 4.5h7v7h-7zM6.5 1.5v3M9.5 1.5v3M6.5 11.5v3M9.5 11.5v3M1.5 6.5h3M1.5 9.5h3M11.5 6.5h3M11.5 9.5h3",
  console: "M2 3h12v10H2zM4.5 6l2 2-2 2M8 10h3",
  delta: "M8 2.5L14 13H2z",
  filter: "M2 3h12L9.5 8.5V13l-3 1.5v-6z",
  select: "M3 3h10v10H3zM6.5 3v10M9.8 3v10",
  sql: "M5.5 4.5L2 8l3.5 3.5M10.5 4.5L14 8l-3.5 3.5",
  python: "M5.5 4.5L2 8l3.5 3.5M10.5 4.5L14 8l-3.5 3.5M9 3L7 13",
  window: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 4.8V8l2.4 1.6",
  rolling: "M13.5 8A5.5 5.5 0 1 1 11.6 3.8M11.8 1.2v2.8H9M8 5.2V8l2 1.4",
  geo_window: "M8 14.5s4.8-4.4 4.8-7.9a4.8 4.8 0 1 0-9.6 0c0 3.5 4.8 7.9 4.8 7.9zM8 8.2a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4z",
  join: "M6.2 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM9.8 4a4 4 0 1 1 0 8 4 4 0 0 1 0-8z",
  union: "M14 8h-4L6 4H2M10 8l-4 4H2",
  route: "M2 8h4l4-4h4M6 8l4 4h4",
  expect: "M3 8.5l3.2 3.2L13 5",
  dedupe: "M5.5 5.5h8v8h-8zM3 10.5V3h7.5",
  top_n: "M3 13V9M8 13V3M13 13V6",
  latest: "M3 8l4 4 6-8M3 13.5h10",
};
const LIKE: Record<string, string> = { changelog_join: "join", cdc: "kafka", sql_poll: "sink" };

export function Icon({ component, kind }: { component: string | null; kind: string }) {
  const name = component ?? "";
  const own = DRAWN[LIKE[name] ?? name] ?? DRAWN[kind] ?? "";
  return (
    <svg className={`icon of-${kind}`} viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      <path d={own} />
    </svg>
  );
}
