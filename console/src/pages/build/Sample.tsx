/** Rows that a node would give, through the real engine, and the columns they have. */
import { useMutation } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { api, WHILE_BUSY } from "../../api/client";
import { exact, plural } from "../../logic/format";
import { Mistakes } from "../../ui/states";
import { useSettled } from "../edit/editing";

interface Props {
  file: { path: string; text: string };
  node: string;
}

export function Sample({ file, node }: Props) {
  const run = useMutation({
    mutationFn: ({ fresh, text }: { fresh: boolean; text: string }) =>
      api.post("/api/v1/preview", { body: { file: { path: file.path, text }, node, rows: 50, fresh } }),
    ...WHILE_BUSY,
  });
  const asked = useRef<{ node: string; text: string } | null>(null);
  const { mutate, isError } = run;
  const settled = useSettled(file.text);
  useEffect(() => {
    // Rows stay while the file changes, until they are asked for again; a mistake is taken back as soon as it is mended.
    const before = asked.current;
    if (before?.node === node && !(isError && before.text !== settled)) return;
    asked.current = { node, text: settled };
    mutate({ fresh: false, text: settled });
  }, [node, settled, isError, mutate]);
  const again = (fresh: boolean) => mutate({ fresh, text: file.text });
  const found = run.data?.node === node ? run.data : undefined;
  return (
    <div className="sample">
      <div className="sample-head">
        <p role="status" className="quiet">
          {run.isPending ? "Spark runs it on a sample…" : found ? said(found) : ""}
          {!run.isPending && found && file.text !== run.variables?.text && <em className="stale"> The file has changed since.</em>}
        </p>
        <div className="buttons">
          <button type="button" disabled={run.isPending} onClick={() => again(false)}>Run again</button>
          <button type="button" disabled={run.isPending} onClick={() => again(true)}>Other rows</button>
        </div>
      </div>
      {run.error && !run.isPending ? <Mistakes error={run.error} /> : null}
      {found && found.rows.length > 0 && (
        <div className={`sample-rows${run.isPending ? " waits" : ""}`} tabIndex={0} role="region" aria-label={`Rows of ${node}`}>
          <table>
            <thead><tr>{found.columns.map(({ name, type }) => <th key={name} scope="col">{name} <small>{type}</small></th>)}</tr></thead>
            <tbody>
              {found.rows.map((row, index) => (
                <tr key={index}>{found.columns.map(({ name }) => <td key={name} className="mono">{written(row[name])}</td>)}</tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {found && found.rows.length === 0 && <p className="quiet">No row came through. {found.total === 0 && Object.values(found.sampled).every((count) => count === 0) ? "The sources gave none in the time that was waited for." : ""}</p>}
      {found && found.dead.length > 0 && (
        <details><summary>{plural(found.dead.length, "dead letter")}</summary>
          <ul className="mistakes">{found.dead.slice(0, 10).map((each, index) => <li key={index}>{written(each.error)} <code className="quiet">{written(each.raw)}</code></li>)}</ul>
        </details>
      )}
    </div>
  );
}

function said({ total, sampled, dead, late }: { total: number; sampled: Record<string, number>; dead: unknown[]; late: number }): string {
  const given = Object.entries(sampled).map(([source, count]) => `${exact(count)} of ${source}`).join(", ");
  const lost = [dead.length > 0 ? plural(dead.length, "dead letter") : "", late > 0 ? plural(late, "late row") : ""].filter(Boolean);
  return `${plural(total, "row")} from ${given}${lost.length > 0 ? `; ${lost.join(", ")}` : ""}. Nothing was stored anywhere.`;
}

function written(value: unknown): string {
  if (value === null || value === undefined) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}
