/** Where pipelines run; a place that will be taken away is left before that. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "../../api/client";
import type { Target } from "../../api/types";
import { useSession } from "../../session";
import { Confirm } from "../../ui/Dialog";
import { type Column, Listed, Table } from "../../ui/Listed";
import type { Schemas } from "../../api/client";
import { Time } from "../../ui/small";
import { Loading, Refused } from "../../ui/states";
import { useToasts } from "../../ui/toasts";

type Move = Schemas["FailoverAnswer"];

export default function TargetsPage() {
  const { may, whole } = useSession();
  const [leaving, setLeaving] = useState<string | null>(null);
  const found = useQuery({ queryKey: ["targets"], queryFn: () => api.get("/api/v1/targets", {}), refetchInterval: 10_000 });
  const act = useReclaim(() => setLeaving(null));
  if (found.error && !found.data) return <Refused error={found.error} again={() => void found.refetch()} />;
  if (!found.data) return <Loading what="targets" />;
  const action: Column<Target> = {
    title: "", className: "tight",
    cell: ({ name, notices }) => notices.length > 0
      ? <button type="button" disabled={act.isPending} onClick={() => act.mutate({ name, back: true })}>Put into use</button>
      : <button type="button" onClick={() => setLeaving(name)}>Take out of use…</button>,
  };
  const next = found.data.find(({ name }) => name === leaving)?.failover ?? [];
  return (
    <>
      <title>Targets · Penstock</title>
      <div className="head-line"><h1>Targets</h1></div>
      <Table caption="Targets" columns={may("operator") && whole ? [...COLUMNS, action] : COLUMNS} items={found.data} id={({ name }) => name} />
      <section>
        <h2 className="spaced">Moves from one target to another</h2>
        <Listed
          what="moves" queryKey={["failovers"]} columns={MOVES} id={({ id }) => id} every={10_000} empty={<p className="quiet">No pipeline had to move.</p>}
          load={(after) => api.get("/api/v1/failovers", { query: { limit: 50, after: after === undefined ? undefined : Number(after) } })}
        />
      </section>
      {leaving !== null && (
        <Confirm title={`Take ${leaving} out of use?`} action="Take out of use" busy={act.isPending} confirm={() => act.mutate({ name: leaving, back: false })} close={() => setLeaving(null)}>
          <p>Its pipelines stop with a checkpoint {next.length > 0 ? <>and go on at {next.join(" or ")}.</> : <>and wait: no other target is named for them.</>}</p>
        </Confirm>
      )}
    </>
  );
}

const COLUMNS: Column<Target>[] = [
  { title: "Target", cell: ({ name, default: first }) => <><b>{name}</b> {first && <span className="badge stopped">default</span>}</> },
  { title: "Kind", className: "tight", cell: ({ kind }) => kind },
  { title: "Needs role", className: "tight", cell: ({ role }) => role },
  { title: "Goes on at", cell: ({ failover }) => failover.join(", ") || "–" },
  { title: "State", cell: ({ notices }) => notices.length === 0 ? <span className="badge healthy"><span aria-hidden="true">●</span> In use</span> : notices.map(({ at, heardFrom, deadline }) => (
    <span key={heardFrom}><span className="badge attention"><span aria-hidden="true">▲</span> Will be taken away</span> told by {heardFrom} <Time at={at} />{deadline && <>, until <Time at={deadline} /></>}</span>
  )) },
];

const MOVES: Column<Move>[] = [
  { title: "Pipeline", className: "tight", cell: ({ pipeline }) => pipeline },
  { title: "From", className: "tight", cell: ({ fromTarget }) => fromTarget },
  { title: "To", className: "tight", cell: ({ toTarget }) => toTarget },
  { title: "Noticed", className: "tight", cell: ({ noticedAt }) => <Time at={noticedAt} /> },
  { title: "Stopped", className: "tight", cell: ({ stoppedAt }) => <Time at={stoppedAt} /> },
  { title: "Started", className: "tight", cell: ({ startedAt }) => <Time at={startedAt} /> },
  { title: "Caught up", className: "tight", cell: ({ caughtUpAt }) => <Time at={caughtUpAt} /> },
];

function useReclaim(after: () => void) {
  const client = useQueryClient();
  const toasts = useToasts();
  return useMutation({
    mutationFn: async ({ name, back }: { name: string; back: boolean }) => {
      if (back) await api.delete("/api/v1/targets/{name}/reclaim", { path: { name } });
      else await api.post("/api/v1/targets/{name}/reclaim", { path: { name } });
      return back;
    },
    onSuccess: (back) => toasts.done(back ? "The target is used again" : "Its pipelines leave it"),
    onError: (error) => toasts.failed(error),
    onSettled: () => {
      after();
      void client.invalidateQueries({ queryKey: ["targets"] });
    },
  });
}
