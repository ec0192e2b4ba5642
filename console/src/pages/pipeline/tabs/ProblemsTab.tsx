/** What runs failed of, whose business that is, and what to do. */
import { api, type Schemas } from "../../../api/client";
import { type Column, Listed } from "../../../ui/Listed";
import { Time } from "../../../ui/small";
import { Empty } from "../../../ui/states";

type Failure = Schemas["ExceptionAnswer"];

const OWNERS: Record<string, string> = {
  author: "the author of the pipeline", operator: "the operator", external: "something outside", bug: "a bug of Penstock",
};

const COLUMNS: Column<Failure>[] = [
  { title: "When", className: "tight", cell: ({ at }) => <Time at={at} /> },
  { title: "What", cell: ({ code, message }) => <><code>{code}</code> {message}</> },
  { title: "What to do", cell: ({ hint }) => hint },
  { title: "Up to", cell: ({ owner }) => OWNERS[owner] ?? owner },
  { title: "Run", className: "tight", cell: ({ run }) => run && <code>{run}</code> },
];

export default function ProblemsTab({ name }: { name: string }) {
  return (
    <Listed
      what="problems" queryKey={["exceptions", name]} columns={COLUMNS} id={({ id }) => id} every={10_000}
      load={(after) => api.get("/api/v1/pipelines/{name}/exceptions", { path: { name }, query: { limit: 50, after: after === undefined ? undefined : Number(after) } })}
      empty={<Empty title="No run has failed">What a run fails of is told here, with what to do about it.</Empty>}
    />
  );
}
