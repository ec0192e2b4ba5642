/** Batches, the newest first: what came, what became of it, and how long it took. `?batch=` begins with one of them. */
import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router";
import { api } from "../../../api/client";
import type { Batch } from "../../../api/types";
import { brief, exact } from "../../../logic/format";
import { type Column, Listed } from "../../../ui/Listed";
import { Time } from "../../../ui/small";
import { Empty } from "../../../ui/states";

function columns(chosen: number | null): Column<Batch>[] {
  return [
    { title: "Batch", className: "right", cell: ({ batch, span: many }) => <>{batch === chosen ? <mark>{exact(batch)}</mark> : exact(batch)}{many > 1 && <span className="quiet"> and {exact(many - 1)} before</span>}</> },
    { title: "When", className: "tight", cell: ({ at }) => <Time at={at} /> },
    { title: "Took", className: "right", cell: ({ durationMs, span: many }) => brief(durationMs / 1000 / Math.max(1, many)) },
    { title: "Rows in", className: "right", cell: ({ rowsIn }) => exact(rowsIn) },
    { title: "Out", className: "right", cell: ({ rowsOut }) => exact(rowsOut) },
    { title: "Filtered", className: "right", cell: ({ filtered }) => exact(filtered) },
    { title: "Late", className: "right", cell: ({ late }) => exact(late) },
    { title: "Dead", className: "right", cell: ({ dead }) => (dead > 0 ? <b className="tone bad">{exact(dead)}</b> : exact(dead)) },
    { title: "Ledger", className: "tight", cell: ({ balanced }) => <span className={`badge ${balanced ? "healthy" : "attention"}`}>{balanced ? "balanced" : "not balanced"}</span> },
    { title: "Run", className: "tight", cell: ({ run }) => <code>{run}</code> },
  ];
}

export default function BatchesTab({ name }: { name: string }) {
  const [search] = useSearchParams();
  const asked = search.get("batch") ?? "";
  const chosen = /^\d{1,15}$/.test(asked) ? Number(asked) : null;
  return (
    <>
      {chosen !== null && <Chosen name={name} batch={chosen} />}
      <Listed
        what="batches" queryKey={["batches", name, chosen]} columns={columns(chosen)} id={({ id }) => id} every={chosen === null ? 5000 : 20_000}
        load={(after) => batches(name, chosen, after)}
        empty={<Empty title="No batch yet">Each is listed here as soon as it is committed.</Empty>}
      />
    </>
  );
}

function batches(name: string, upTo: number | null, after?: string) {
  return api.get("/api/v1/pipelines/{name}/batches", { path: { name }, query: { limit: 50, ...(upTo === null ? {} : { upTo }), ...(after === undefined ? {} : { after: Number(after) }) } });
}

function Chosen({ name, batch }: { name: string; batch: number }) {
  const { data } = useQuery({ queryKey: ["batches", name, batch, "one"], queryFn: () => batches(name, batch) });
  const newest = data?.items[0];
  const committed = newest !== undefined && newest.batch >= batch;
  return (
    <p className={data && !committed ? "note" : "quiet"}>
      {data && !committed && <>Batch {exact(batch)} has not been committed: nothing of it was kept, and it is tried again. </>}
      Those up to batch {exact(batch)} are shown. <Link to={`/pipelines/${encodeURIComponent(name)}/batches`}>Show the newest</Link>
    </p>
  );
}
