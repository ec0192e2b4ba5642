/** Who changed what. */
import { useSearchParams } from "react-router";
import { api } from "../../api/client";
import type { Audit } from "../../api/types";
import { useSession } from "../../session";
import { type Column, Listed } from "../../ui/Listed";
import { Time } from "../../ui/small";
import { Empty } from "../../ui/states";

const COLUMNS: Column<Audit>[] = [
  { title: "When", className: "tight", cell: ({ at }) => <Time at={at} /> },
  { title: "Who", cell: ({ who, role }) => <>{who} <span className="quiet">{role}</span></> },
  { title: "Did", className: "tight", cell: ({ action }) => action },
  { title: "To", cell: ({ object }) => object },
  { title: "Detail", cell: ({ detail }) => Object.keys(detail).length > 0 && <code className="raw">{JSON.stringify(detail)}</code> },
];

export default function AuditPage() {
  const { may, whole, who } = useSession();
  const [query, setQuery] = useSearchParams();
  const of = query.get("of") ?? "";
  if (!may("admin") || !whole) return <Empty title="You may not read the audit log">It takes the role admin, without a limit to some pipelines; you are {who.role}.</Empty>;
  return (
    <>
      <title>Audit log · Penstock</title>
      <div className="head-line">
        <h1>Audit log</h1>
        <label>
          <span className="unseen">Only changes of</span>
          <input type="search" placeholder="Only changes of…" defaultValue={of} onChange={({ target }) => setQuery(target.value ? { of: target.value } : {}, { replace: true })} />
        </label>
      </div>
      <Listed
        key={of} what="the audit log" queryKey={["audit", of]} columns={COLUMNS} id={({ id }) => id} every={15_000}
        load={(after) => api.get("/api/v1/audit", { query: { of: of || undefined, limit: 100, after: after === undefined ? undefined : Number(after) } })}
        empty={<Empty title={of ? `Nothing was done to ${of}` : "Nothing was changed yet"}>{of && "Write the whole name of a pipeline, target or token."}</Empty>}
      />
    </>
  );
}
