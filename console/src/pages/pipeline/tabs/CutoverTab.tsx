/** A new version beside the one that runs: how far it is, how it compares, and letting it take over. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";
import { Refusal } from "../../../api/client";
import { cutover } from "../../../api/cutover";
import { savepoints } from "../../../api/savepoints";
import type { LivePipeline } from "../../../api/types";
import { differs, howWords, newest, rowWords, type SinkCompared } from "../../../logic/cutover";
import { exact, plural } from "../../../logic/format";
import { useSession } from "../../../session";
import { Confirm } from "../../../ui/Dialog";
import { Table } from "../../../ui/Listed";
import { Time } from "../../../ui/small";
import { Empty, Loading, Refused } from "../../../ui/states";
import { useAct } from "./act";

export default function CutoverTab({ pipeline }: { pipeline: LivePipeline }) {
  const { name } = pipeline;
  const { may } = useSession();
  const [asked, setAsked] = useState<"finish" | "abort" | null>(null);
  const act = useAct(name, () => setAsked(null));
  const follows = pipeline.operations.find(({ kind }) => kind === "cutover");
  const others = pipeline.operations.filter(({ kind }) => kind === "compare" || kind === "takeover" || kind === "abandon");
  // The server asks a process of its own, so it is asked anew only when something has happened.
  const key = [follows?.id, follows?.stage?.startsWith("it follows"), others.map(({ id }) => id).join()];
  const found = useQuery({ queryKey: ["cutover", name, ...key], queryFn: () => cutover.get(name), retry: false, refetchOnWindowFocus: false });
  const done = useQuery({ queryKey: ["operations", name, ...key], queryFn: () => savepoints.operations(name), refetchInterval: 5000 });
  const unknown = found.error instanceof Refusal && found.error.status === 404;
  if (unknown && follows) return <p role="status">A new version is being given a state of its own: {follows.stage ?? "it waits for its turn"}.</p>;
  if (unknown) return <None name={name} />;
  if (found.error) return <Refused error={found.error} again={() => void found.refetch()} />;
  if (!found.data) return <Loading what="the cut-over" />;
  const { version, savepoint, batch, startedAt, kept, begun, stage } = found.data;
  const compared = newest(done.data?.items ?? []);
  return (
    <>
      <div className="section-head">
        <div>
          <h2>Version {version} beside version {pipeline.version}</h2>
          <p className="quiet">
            Since <Time at={startedAt} />, from savepoint {savepoint}{batch >= 0 && <>, after batch {exact(batch)}</>}. It reads what the pipeline has read, and keeps away from its sinks.
          </p>
        </div>
        <div className="buttons">
          {may("operator") && <button type="button" disabled={act.isPending || stage !== "following" || others.length > 0} onClick={() => act.mutate(() => cutover.compare(name))}>Compare</button>}
          {may("author") && <button type="button" disabled={others.length > 0} onClick={() => setAsked("abort")}>Give up…</button>}
          {may("author") && <button type="button" className="primary" disabled={stage !== "following" || others.length > 0} onClick={() => setAsked("finish")}>Take over…</button>}
        </div>
      </div>
      {!follows && <p role="status" className="note">Nothing lets it follow now: begin it again with the same file, take over, or give it up.</p>}
      <ul className="quiet">
        {Object.entries(kept).map(([step, rows]) => <li key={step}><b>{step}</b> went on with {plural(rows, "row")} of state</li>)}
        {begun.map((step) => <li key={step}><b>{step}</b> began empty</li>)}
      </ul>
      {compared && <Comparison {...compared} />}
      {asked === "finish" && (
        <Confirm title={`Let version ${version} take over?`} action="Take over" busy={act.isPending} confirm={() => act.mutate(() => cutover.finish(name))} close={() => setAsked(null)}>
          <p>{name} stops after its batch, a savepoint is taken of it, and version {version} goes on from the same positions, into the same sinks. Nothing is lost, and nothing comes twice.</p>
          <p className="quiet">If anything fails, version {pipeline.version} goes on.{compared === null && " You have not compared them."}</p>
        </Confirm>
      )}
      {asked === "abort" && (
        <Confirm title={`Give version ${version} up?`} action="Give up" busy={act.isPending} confirm={() => act.mutate(() => cutover.abort(name))} close={() => setAsked(null)}>
          <p>All that was made for it is removed. {name} goes on as it is; it does not notice.</p>
        </Confirm>
      )}
    </>
  );
}

function None({ name }: { name: string }) {
  const { may } = useSession();
  return (
    <Empty title="No new version follows it">
      <p>A new version can run beside this one first, on the same rows and away from its sinks, be compared with it, and then take over.</p>
      {may("author") && <p>Edit the pipeline, look at the plan, and choose <b>Run beside</b>. <Link to={`/pipelines/${encodeURIComponent(name)}/edit`}>Edit {name}</Link></p>}
    </Empty>
  );
}

function Comparison({ at, behind, sinks }: { at: string; behind: number; sinks: SinkCompared[] }) {
  const unlike = sinks.filter(differs);
  const counted = (write: (counts: NonNullable<SinkCompared["counts"]>) => number) => ({ counts }: SinkCompared) => (counts === null ? "–" : exact(write(counts)));
  return (
    <section aria-label="Comparison">
      <h2>What both have given out</h2>
      <p className={unlike.length > 0 ? "note" : "quiet"}>
        {unlike.length > 0 ? `${plural(unlike.length, "sink")} would hold other rows.` : "All rows that can be compared are equal."} Compared <Time at={at} />{behind > 0 && `, when the new version was ${plural(behind, "batch", "batches")} behind`}.
      </p>
      <Table
        caption="Comparison by sink" items={sinks} id={({ sink }) => sink}
        columns={[
          { title: "Sink", className: "tight", cell: (each) => <><b>{each.sink}</b> {differs(each) && <span className="badge catching">differs</span>}</> },
          { title: "Equal", className: "right", cell: counted(({ equal }) => equal) },
          { title: "Different", className: "right", cell: counted(({ different }) => different) },
          { title: "Only before", className: "right", cell: counted(({ onlyOld }) => onlyOld) },
          { title: "Only new", className: "right", cell: counted(({ onlyNew }) => onlyNew) },
          { title: "Compared", cell: (each) => <>{howWords(each)}{each.newColumns.length > 0 && `, without ${each.newColumns.join(", ")}, which is new`}{each.goneColumns.length > 0 && `, without ${each.goneColumns.join(", ")}, which is gone`}</> },
        ]}
      />
      {unlike.map(({ sink, counts }) => (
        <div key={sink}>
          <h3>{sink}</h3>
          <pre className="flow-diff" tabIndex={0} aria-label={`Rows of ${sink} that differ`}>
            {counts?.samples.map(({ old, new: now }, index) => (
              <span key={index}>{old && <span className="goes">{`- ${rowWords(old)}\n`}</span>}{now && <span className="comes">{`+ ${rowWords(now)}\n`}</span>}</span>
            ))}
          </pre>
        </div>
      ))}
    </section>
  );
}
