/** Every row that came in is accounted for: by batch, by node, and by window of event time where that is kept. */
import { useQuery } from "@tanstack/react-query";
import { api, Refusal, type Schemas } from "../../../api/client";
import { exact } from "../../../logic/format";
import { type Column, Table } from "../../../ui/Listed";
import { Empty, Loading, Refused } from "../../../ui/states";

type Accounted = Schemas["Accounted"];
type Verdict = Schemas["BatchAccount"]["verdict"];

const VERDICTS: Record<Verdict, { group: string; words: string }> = {
  sealed: { group: "healthy", words: "adds up" },
  open: { group: "changing", words: "not complete yet" },
  unbalanced: { group: "attention", words: "does not add up" },
};

export default function LedgerTab({ name }: { name: string }) {
  const ledger = useQuery({
    queryKey: ["ledger", name],
    queryFn: () => api.get("/api/v1/pipelines/{name}/ledger", { path: { name }, query: { last: 50 } }),
    staleTime: 30_000,
  });
  const windows = useQuery({
    queryKey: ["ledger", name, "windows"],
    queryFn: () => api.get("/api/v1/pipelines/{name}/ledger/windows", { path: { name }, query: { last: 50 } }),
    enabled: ledger.data !== undefined,
    staleTime: 30_000,
  });
  if (ledger.error instanceof Refusal && ledger.error.problem.code === "STATE_MISSING") {
    return <Empty title="No ledger yet">It begins with the first batch that is committed.</Empty>;
  }
  if (ledger.error && !ledger.data) return <Refused error={ledger.error} again={() => void ledger.refetch()} />;
  if (!ledger.data) return <Loading what="the ledger" />;
  const { verdict, totals, batches } = ledger.data;
  return (
    <>
      <div className="section-head">
        <p className="sentence"><VerdictBadge verdict={verdict} /> {equation(totals)}</p>
        <button type="button" disabled={ledger.isFetching} onClick={() => void ledger.refetch()}>{ledger.isFetching ? "Looking…" : "Look again"}</button>
      </div>
      <h2>Newest batches</h2>
      <Table caption="Batches" columns={BATCHES} items={[...batches].sort((a, b) => b.batch - a.batch)} id={({ batch }) => batch} />
      {windows.data && windows.data.items.length > 0 && (
        <>
          <h2 className="spaced">Windows of event time</h2>
          <Table caption="Windows" columns={WINDOWS} items={windows.data.items} id={({ start }) => start} />
        </>
      )}
    </>
  );
}

function VerdictBadge({ verdict }: { verdict: Verdict }) {
  const { group, words } = VERDICTS[verdict];
  return <span className={`badge ${group}`}>{words}</span>;
}

const sum = (counts: Record<string, number>) => Object.values(counts).reduce((total, each) => total + each, 0);
const parts = (counts: Record<string, number>) => Object.entries(counts).map(([node, number]) => `${node} ${exact(number)}`).join(", ");

function equation(totals: Accounted): string {
  return `${exact(sum(totals.in))} rows came in; ${exact(sum(totals.out))} went out, ${exact(sum(totals.filtered))} were filtered, ${exact(sum(totals.late))} came late, ${exact(sum(totals.dead))} are dead letters, ${exact(sum(totals.replayed))} were fed again.`;
}

function counts<T extends Accounted>(title: string, pick: (item: T) => Record<string, number>): Column<T> {
  return { title, className: "right", cell: (item) => <span title={parts(pick(item))}>{exact(sum(pick(item)))}</span> };
}

function accounted<T extends Accounted & { verdict: Verdict; problems: string[] }>(): Column<T>[] {
  return [
    counts("In", (item) => item.in), counts("Out", (item) => item.out), counts("Filtered", (item) => item.filtered),
    counts("Late", (item) => item.late), counts("Dead", (item) => item.dead), counts("Fed again", (item) => item.replayed),
    { title: "Verdict", cell: (item) => <><VerdictBadge verdict={item.verdict} /> {item.problems.join("; ")}</> },
  ];
}

const BATCHES: Column<Schemas["BatchAccount"]>[] = [{ title: "Batch", className: "right", cell: ({ batch }) => batch }, ...accounted<Schemas["BatchAccount"]>()];
const WINDOWS: Column<Schemas["WindowAccount"]>[] = [{ title: "From", className: "tight", cell: ({ start }) => start }, ...accounted<Schemas["WindowAccount"]>()];
