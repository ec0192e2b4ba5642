/** Silences that hold; one can be ended before its time. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, serverNow } from "../../api/client";
import type { Silence } from "../../api/types";
import { useSession } from "../../session";
import { type Column, Table } from "../../ui/Listed";
import { Time } from "../../ui/small";
import { useToasts } from "../../ui/toasts";
import "./alerts.css";

export function Silences() {
  const { may } = useSession();
  const client = useQueryClient();
  const toasts = useToasts();
  const { data } = useQuery({ queryKey: ["silences"], queryFn: () => api.get("/api/v1/silences", { query: { limit: 200 } }), refetchInterval: 15_000 });
  const end = useMutation({
    mutationFn: (number: number) => api.delete("/api/v1/silences/{number}", { path: { number } }),
    onSuccess: () => toasts.done("The silence has ended"),
    onError: (error) => toasts.failed(error),
    onSettled: () => client.invalidateQueries({ queryKey: ["silences"] }),
  });
  const held = data?.items.filter(({ until }) => Date.parse(until) > serverNow()) ?? [];
  if (held.length === 0) return null;
  const columns: Column<Silence>[] = [
    { title: "Pipeline", className: "tight", cell: ({ pipeline }) => pipeline ?? "all" },
    { title: "Rule", cell: ({ rule }) => rule ?? "all" },
    { title: "Until", className: "tight", cell: ({ until }) => <Time at={until} /> },
    { title: "By", cell: ({ createdBy }) => createdBy },
    { title: "Why", cell: ({ why }) => why },
  ];
  const action: Column<Silence> = {
    title: "", className: "tight", cell: ({ id }) => <button type="button" disabled={end.isPending} onClick={() => end.mutate(id)}>End now</button>,
  };
  return (
    <section className="silences">
      <h2>Silences</h2>
      <Table caption="Silences" columns={may("operator") ? [...columns, action] : columns} items={held} id={({ id }) => id} />
    </section>
  );
}
