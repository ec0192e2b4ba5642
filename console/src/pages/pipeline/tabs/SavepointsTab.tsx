/** Savepoints of a pipeline: taken, verified, compared, gone back to, and forked from. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";
import { type Savepoint, savepoints } from "../../../api/savepoints";
import type { LivePipeline } from "../../../api/types";
import { bytes, exact, utc } from "../../../logic/format";
import { compared, operationWords, outcome } from "../../../logic/savepoints";
import { useSession } from "../../../session";
import { Confirm, Dialog } from "../../../ui/Dialog";
import { type Column, Listed, Table } from "../../../ui/Listed";
import { Ago, Time } from "../../../ui/small";
import { Empty, Loading, Mistakes } from "../../../ui/states";
import { useAct } from "./act";

type Wish = { do: "take" } | { do: "restore" | "forget" | "compare"; savepoint: Savepoint };

export default function SavepointsTab({ pipeline }: { pipeline: LivePipeline }) {
  const { name } = pipeline;
  const { may } = useSession();
  const [wish, setWish] = useState<Wish | null>(null);
  const act = useAct(name, () => setWish(null));
  const close = () => setWish(null);
  const columns: Column<Savepoint>[] = [
    { title: "Savepoint", className: "tight", cell: (each) => <><b>{each.name}</b> {each.automatic && <span className="label">automatic</span>}</> },
    { title: "Taken", className: "tight", cell: ({ at }) => <Time at={at} /> },
    { title: "Batch", className: "right", cell: ({ batch }) => exact(batch) },
    { title: "Version", className: "right", cell: ({ version }) => version ?? "–" },
    { title: "Size", className: "right", cell: ({ bytes: size }) => bytes(size) },
    { title: "State", className: "right", cell: ({ stateBytes }) => bytes(stateBytes) },
    { title: "Event time", className: "tight", cell: ({ watermark }) => (watermark === null ? "–" : <span title={utc(watermark)}><Ago at={new Date(watermark).toISOString()} /></span>) },
    { title: "Note", cell: ({ note }) => note },
    {
      title: "", cell: (savepoint) => (
        <span className="buttons">
          {may("operator") && <button type="button" aria-label={`Verify ${savepoint.name}`} disabled={act.isPending} onClick={() => act.mutate(() => savepoints.verify(name, savepoint.name))}>Verify</button>}
          <button type="button" aria-label={`Compare ${savepoint.name}`} onClick={() => setWish({ do: "compare", savepoint })}>Compare…</button>
          {may("author") && <button type="button" aria-label={`Go back to ${savepoint.name}`} onClick={() => setWish({ do: "restore", savepoint })}>Go back…</button>}
          {may("author") && <Link className="button" aria-label={`Fork from ${savepoint.name}`} to={`/pipelines/${encodeURIComponent(name)}/edit?fork=${encodeURIComponent(savepoint.name)}${savepoint.version ? `&version=${savepoint.version}` : ""}`}>Fork…</Link>}
          {may("operator") && <button type="button" className="danger" aria-label={`Delete ${savepoint.name}`} onClick={() => setWish({ do: "forget", savepoint })}>Delete…</button>}
        </span>
      ),
    },
  ];
  return (
    <>
      <div className="section-head">
        <p className="quiet">A savepoint holds where every source was read up to, the state, and the sinks' place: a pipeline can go back to it, and others can begin with it.</p>
        {may("operator") && <button type="button" className="primary" onClick={() => setWish({ do: "take" })}>Take a savepoint</button>}
      </div>
      <Ended name={name} />
      <Listed
        what="savepoints" queryKey={["savepoints", name]} columns={columns} id={(each) => each.name} every={5000} load={(after) => savepoints.list(name, after)}
        empty={<Empty title="No savepoints yet">{may("operator") ? "Take one before a change that you may want to take back." : "Somebody with the role operator can take one."}</Empty>}
      />
      {wish?.do === "take" && <Take name={name} busy={act.isPending} go={(body) => act.mutate(() => savepoints.take(name, body))} close={close} />}
      {wish?.do === "compare" && <Compare name={name} savepoint={wish.savepoint} close={close} />}
      {wish?.do === "restore" && <Restore pipeline={pipeline} savepoint={wish.savepoint} busy={act.isPending} go={(keep) => act.mutate(() => savepoints.restore(name, wish.savepoint.name, keep))} close={close} />}
      {wish?.do === "forget" && (
        <Confirm title={`Delete ${wish.savepoint.name}?`} action="Delete" word={wish.savepoint.name} busy={act.isPending} confirm={() => act.mutate(() => savepoints.forget(name, wish.savepoint.name))} close={close}>
          <p>Its {bytes(wish.savepoint.bytes)} are removed. {name} can no longer go back to batch {exact(wish.savepoint.batch)}.</p>
        </Confirm>
      )}
    </>
  );
}

/** What became of work that was asked for lately. */
function Ended({ name }: { name: string }) {
  const { data } = useQuery({ queryKey: ["operations", name], queryFn: () => savepoints.operations(name), refetchInterval: 3000 });
  const ended = data?.items.filter(({ state }) => state === "failed" || state === "done").slice(0, 3) ?? [];
  if (ended.length === 0) return null;
  return (
    <ul className="ended">
      {ended.map((each) => (
        <li key={each.id} className={each.state === "failed" ? "note bad" : "quiet"}>{each.endedAt && <Time at={each.endedAt} />} {operationWords(each)}: {outcome(each)}</li>
      ))}
    </ul>
  );
}

function Take({ name, busy, go, close }: { name: string; busy: boolean; go: (body: { name?: string; note?: string }) => void; close: () => void }) {
  const [called, setCalled] = useState("");
  const [note, setNote] = useState("");
  return (
    <Confirm title={`Take a savepoint of ${name}?`} action="Take" busy={busy} confirm={() => go({ ...(called ? { name: called } : {}), ...(note ? { note } : {}) })} close={close}>
      <p className="quiet">A running pipeline goes on; it only waits for a moment between two batches.</p>
      <label className="field">Name <input value={called} placeholder="made from the time" onChange={(event) => setCalled(event.target.value)} autoComplete="off" /></label>
      <label className="field">Why <input value={note} onChange={(event) => setNote(event.target.value)} autoComplete="off" /></label>
    </Confirm>
  );
}

interface RestoreProps {
  pipeline: LivePipeline;
  savepoint: Savepoint;
  busy: boolean;
  go: (keepRows: boolean) => void;
  close: () => void;
}

function Restore({ pipeline, savepoint, busy, go, close }: RestoreProps) {
  const [keep, setKeep] = useState(false);
  const batch = pipeline.status?.last_batch?.batch ?? null;
  const lost = batch !== null && savepoint.batch !== null ? batch - savepoint.batch : null;
  return (
    <Confirm title={`Go back to ${savepoint.name}?`} action="Go back" word={pipeline.name} busy={busy} confirm={() => go(keep)} close={close}>
      <p>{pipeline.name} becomes what it was at <b><Time at={savepoint.at} /></b>{savepoint.version !== null && <>, with version {savepoint.version} of its file</>}.
        {lost !== null && lost > 0 && <> What {exact(lost)} batches have done since is undone, and done anew.</>}</p>
      <label><input type="checkbox" checked={keep} onChange={(event) => setKeep(event.target.checked)} /> Leave in the sinks what they have stored since</label>
    </Confirm>
  );
}

function Compare({ name, savepoint, close }: { name: string; savepoint: Savepoint; close: () => void }) {
  const all = useQuery({ queryKey: ["savepoints", name, "names"], queryFn: () => savepoints.list(name) });
  const others = all.data?.items.filter((each) => each.name !== savepoint.name) ?? [];
  const [chosen, setChosen] = useState("");
  const against = chosen || (others[0]?.name ?? "");
  const diff = useQuery({ queryKey: ["diff", name, savepoint.name, against], queryFn: () => savepoints.diff(name, savepoint.name, against), enabled: against !== "" });
  return (
    <Dialog title={`${savepoint.name} beside another`} close={close}>
      {all.data && others.length === 0 ? <p>There is no other savepoint to compare it with.</p> : (
        <label className="field">Compare with
          <select value={against} onChange={(event) => setChosen(event.target.value)}>{others.map((each) => <option key={each.name}>{each.name}</option>)}</select>
        </label>
      )}
      {diff.error ? <Mistakes error={diff.error} /> : null}
      {against !== "" && !diff.data && !diff.error && <Loading what="what differs" />}
      {diff.data && (
        <>
          {!diff.data.sameLineage && <p className="note">They are not of the same history: one was not reached from the other.</p>}
          <Table
            caption="What differs" items={compared(diff.data)} id={({ what }) => what}
            columns={[
              { title: "What", cell: ({ what, changed }) => (changed ? <b>{what}</b> : what) },
              { title: savepoint.name, className: "right", cell: ({ before }) => before },
              { title: against, className: "right", cell: ({ after }) => after },
            ]}
          />
        </>
      )}
      <div className="buttons end"><button type="button" onClick={close} autoFocus>Close</button></div>
    </Dialog>
  );
}
