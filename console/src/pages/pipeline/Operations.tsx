/** Work on the state of a pipeline that is going on: what, how far. */
import type { LivePipeline } from "../../api/types";
import { operationWords, progress } from "../../logic/savepoints";

export function Operations({ pipeline }: { pipeline: LivePipeline }) {
  const open = pipeline.operations;
  if (open.length === 0) return null;
  return (
    <ul className="operations" role="status">
      {open.map((each) => {
        const done = progress(each);
        return (
          <li key={each.id}>
            <span><b>{operationWords(each)}</b> {each.stage ?? (each.state === "waiting" ? "waits for its turn" : "")}</span>
            {each.kind !== "cutover" && <progress aria-label={operationWords(each)} {...(done === null ? {} : { value: done })} />}
          </li>
        );
      })}
    </ul>
  );
}
