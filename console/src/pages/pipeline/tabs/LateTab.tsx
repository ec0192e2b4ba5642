/** Rows that came after their window was given out, and letting them correct it. */
import { useQuery } from "@tanstack/react-query";
import { api, Refusal, type Schemas } from "../../../api/client";
import type { LivePipeline } from "../../../api/types";
import { exact, span } from "../../../logic/format";
import { type Column, Table } from "../../../ui/Listed";
import { Empty, Loading, Refused } from "../../../ui/states";
import { Replay } from "../Replay";

const COLUMNS: Column<Schemas["LateRow"] & { key: number }>[] = [
  { title: "Node", className: "tight", cell: ({ node }) => node },
  { title: "Batch", className: "right", cell: ({ batch }) => batch },
  { title: "Late by", className: "tight", cell: ({ lateByMs }) => span(lateByMs === null ? null : lateByMs / 1000) },
  { title: "The row", cell: ({ row }) => <code className="raw">{JSON.stringify(row)}</code> },
];

export default function LateTab({ pipeline: { name, rowsLate } }: { pipeline: LivePipeline }) {
  const found = useQuery({
    queryKey: ["late", name],
    queryFn: () => api.get("/api/v1/pipelines/{name}/late", { path: { name }, query: { limit: 200 } }),
    staleTime: 15_000,
  });
  if (found.error instanceof Refusal && found.error.problem.code === "STATE_MISSING") return <Empty title="No late rows">Late rows that are kept appear here.</Empty>;
  if (found.error && !found.data) return <Refused error={found.error} again={() => void found.refetch()} />;
  if (!found.data) return <Loading what="late rows" />;
  const { items, storedIn } = found.data;
  if (items.length === 0) {
    return (
      <Empty title={rowsLate > 0 ? `${exact(rowsLate)} late rows, none of them kept here` : "No late rows"}>
        {storedIn ? `The pipeline stores them in ${storedIn}, which is not read here.`
          : rowsLate > 0 ? "With the policy drop they are only counted, and with correct they have corrected their windows. Write late: side to keep them." : "Every row came in time."}
      </Empty>
    );
  }
  return (
    <>
      <div className="section-head">
        <p>{exact(rowsLate)} late rows in all. The newest {items.length} that were set aside:</p>
        <div className="buttons">
          <button type="button" disabled={found.isFetching} onClick={() => void found.refetch()}>Look again</button>
          <Replay name={name} what="late" />
        </div>
      </div>
      <Table caption="Late rows" columns={COLUMNS} items={items.map((item, key) => ({ ...item, key }))} id={({ key }) => key} />
    </>
  );
}
