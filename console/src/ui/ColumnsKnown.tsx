/** The columns that leave a node, each with the way it has come. */
import type { Schemas } from "../api/client";
import { type Origin, originOf, sourcesOf } from "../logic/lineage";

type Known = Schemas["NodeKnown"];

export function ColumnsKnown({ nodes, name }: { nodes: ReadonlyMap<string, Known>; name: string }) {
  const found = nodes.get(name);
  if (!found?.columns) return <p className="quiet">Not known. Spark says it once the node and all before it are right; the first time takes some seconds.</p>;
  return (
    <div className="columns-known">
      {found.watermark && <p className="quiet">Event time is <b>{found.watermark.column}</b>; rows may come {found.watermark.delay} late.</p>}
      {found.state && found.state.length > 0 && <p className="quiet">It keeps state: {found.state.map(({ operator, keys }) => (keys.length > 0 ? `${operator} by ${keys.join(", ")}` : operator)).join("; ")}.</p>}
      <ul aria-label={`Columns of ${name}`}>
        {found.columns.map((column) => {
          const origin = originOf(nodes, name, column.name);
          const sources = sourcesOf(origin).filter((each) => each !== `${name}.${column.name}`);
          return (
            <li key={column.name}>
              {origin.from.length === 0 ? <span className="column"><b>{column.name}</b> <code>{column.type}</code></span> : (
                <details>
                  <summary className="column"><b>{column.name}</b> <code>{column.type}</code> <small className="quiet">{sources.join(", ")}</small></summary>
                  <Way origin={origin} />
                </details>
              )}
            </li>
          );
        })}
      </ul>
    </div>
  );
}

function Way({ origin }: { origin: Origin }) {
  return (
    <ul className="way">
      {origin.from.map((each) => (
        <li key={`${each.node}.${each.column}`}><span className="mono">← {each.node}.<b>{each.column}</b></span>{each.from.length > 0 && <Way origin={each} />}</li>
      ))}
    </ul>
  );
}
