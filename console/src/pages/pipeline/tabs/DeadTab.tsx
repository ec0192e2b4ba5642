/** Rows that could not be used, why not, and feeding them again. */
import { useQuery } from "@tanstack/react-query";
import { api, Refusal, type Schemas } from "../../../api/client";
import type { LivePipeline } from "../../../api/types";
import { exact } from "../../../logic/format";
import { type Column, Table } from "../../../ui/Listed";
import { Time } from "../../../ui/small";
import { Empty, Loading, Refused } from "../../../ui/states";
import { Replay } from "../Replay";

const COLUMNS: Column<Schemas["DeadLetter"] & { key: number }>[] = [
  { title: "Seen", className: "tight", cell: ({ seenAt }) => <Time at={seenAt} /> },
  { title: "Node", className: "tight", cell: ({ node, stage }) => [node, stage].filter(Boolean).join(", ") },
  { title: "Batch", className: "right", cell: ({ batch }) => batch },
  { title: "Why", cell: ({ error }) => error },
  { title: "The row as it came", cell: ({ raw, place }) => <><code className="raw">{raw}</code>{place && <span className="quiet">{place}</span>}</> },
];

export default function DeadTab({ pipeline: { name, rowsDead } }: { pipeline: LivePipeline }) {
  const found = useQuery({
    queryKey: ["dead", name],
    queryFn: () => api.get("/api/v1/pipelines/{name}/dead", { path: { name }, query: { limit: 200 } }),
    staleTime: 15_000,
  });
  if (found.error instanceof Refusal && found.error.problem.code === "STATE_MISSING") return <Empty title="No dead letters">Rows that cannot be read, or break a rule, appear here with the reason.</Empty>;
  if (found.error && !found.data) return <Refused error={found.error} again={() => void found.refetch()} />;
  if (!found.data) return <Loading what="dead letters" />;
  const { items, storedIn, replayable } = found.data;
  const again = Object.values(replayable).reduce((sum, each) => sum + each, 0);
  if (items.length === 0) {
    return (
      <Empty title={rowsDead > 0 && storedIn ? `${exact(rowsDead)} dead letters are elsewhere` : "No dead letters"}>
        {storedIn ? `The pipeline stores them in ${storedIn}, which is not read here.` : "Every row could be used."}
      </Empty>
    );
  }
  return (
    <>
      <div className="section-head">
        <p>{exact(rowsDead)} dead letters in all, {exact(again)} of them can be fed again. The newest {items.length}:</p>
        <div className="buttons">
          <button type="button" disabled={found.isFetching} onClick={() => void found.refetch()}>Look again</button>
          {again > 0 && <Replay name={name} what="dead" />}
        </div>
      </div>
      <Table caption="Dead letters" columns={COLUMNS} items={items.map((item, key) => ({ ...item, key }))} id={({ key }) => key} />
    </>
  );
}
