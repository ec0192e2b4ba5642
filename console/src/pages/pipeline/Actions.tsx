/** Start, stop, restart, delete: what the role allows, and what the pipeline is ready for. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useNavigate } from "react-router";
import { api } from "../../api/client";
import { savepoints } from "../../api/savepoints";
import type { LivePipeline } from "../../api/types";
import { bytes, exact } from "../../logic/format";
import { useSession } from "../../session";
import { Confirm } from "../../ui/Dialog";
import { useToasts } from "../../ui/toasts";

type Action = "start" | "stop" | "save" | "restart" | "rescale" | "delete";

const DONE: Record<Action, string> = {
  start: "It starts", stop: "It stops after its batch", save: "It stops after its batch, and a savepoint is taken", rescale: "Its state is divided anew", restart: "It stops after its batch and starts again", delete: "It is being deleted",
};

export function Actions({ pipeline }: { pipeline: LivePipeline }) {
  const { may } = useSession();
  const [asked, setAsked] = useState<Action | null>(null);
  const act = useAction(pipeline, () => setAsked(null));
  const wanted = pipeline.desired === "running";
  const failed = pipeline.state === "FAILED";
  if (pipeline.deleting) return null;
  return (
    <div className="buttons">
      {may("author") && <Link className="button" to={`/pipelines/${encodeURIComponent(pipeline.name)}/edit`}>Edit</Link>}
      {may("operator") && (!wanted || failed) && (
        <button type="button" className="primary" disabled={act.isPending} onClick={() => act.mutate({ action: "start" })}>{failed ? "Try again" : "Start"}</button>
      )}
      {may("operator") && wanted && !failed && <button type="button" onClick={() => setAsked("restart")}>Restart</button>}
      {may("operator") && wanted && <button type="button" onClick={() => setAsked("stop")}>Stop</button>}
      {(may("author") || (may("operator") && wanted)) && (
        <details className="menu dots">
          <summary aria-label="More" title="More"><span aria-hidden="true">⋯</span></summary>
          <div className="menu-box">
            {wanted && <button type="button" onClick={() => setAsked("save")}>Stop with a savepoint…</button>}
            {may("author") && <button type="button" onClick={() => setAsked("rescale")}>Rescale…</button>}
            {may("author") && <button type="button" className="danger" onClick={() => setAsked("delete")}>Delete…</button>}
          </div>
        </details>
      )}
      {asked === "rescale" && <Rescale pipeline={pipeline} busy={act.isPending} go={(partitions) => act.mutate({ action: "rescale", partitions })} close={() => setAsked(null)} />}
      {asked && asked !== "rescale" && <Question action={asked} pipeline={pipeline} busy={act.isPending} go={() => act.mutate({ action: asked })} close={() => setAsked(null)} />}
    </div>
  );
}

function useAction(pipeline: LivePipeline, after: () => void) {
  const toasts = useToasts();
  const client = useQueryClient();
  const navigate = useNavigate();
  const { name } = pipeline;
  return useMutation({
    mutationFn: async ({ action, partitions = 0 }: { action: Action; partitions?: number }): Promise<Action> => {
      const path = { name };
      if (action === "delete") await api.delete("/api/v1/pipelines/{name}", { path, ifMatch: pipeline.revision });
      else if (action === "save") await savepoints.stop(name);
      else if (action === "rescale") await savepoints.rescale(name, partitions);
      else if (action === "stop") await api.post("/api/v1/pipelines/{name}/stop", { path });
      // A new generation is wanted, so the server ends the run after its batch and starts the next.
      else await api.post("/api/v1/pipelines/{name}/start", { path });
      return action;
    },
    onSuccess: (action) => {
      toasts.done(`${name}: ${DONE[action]}`);
      if (action === "delete") void navigate("/");
      void client.invalidateQueries();
    },
    onError: (error) => toasts.failed(error),
    onSettled: after,
  });
}

interface QuestionProps {
  action: Action;
  pipeline: LivePipeline;
  busy: boolean;
  go: () => void;
  close: () => void;
}

function Question({ action, pipeline, busy, go, close }: QuestionProps) {
  const { name, status } = pipeline;
  if (action === "delete") {
    return (
      <Confirm title={`Delete ${name}?`} action="Delete" word={name} busy={busy} confirm={go} close={close}>
        <p>It stops after its batch and is forgotten, with its history of {exact(pipeline.rowsIn)} rows
          {status && status.state_rows > 0 && <> and its state of {exact(status.state_rows)} rows, {bytes(status.state_bytes)}</>}.</p>
        <p className="quiet">What it wrote to its sinks stays. Its files are moved to <code>deleted/</code> of the server and can be brought back from there by hand.</p>
      </Confirm>
    );
  }
  const restart = action === "restart";
  return (
    <Confirm title={`${restart ? "Restart" : "Stop"} ${name}?`} action={restart ? "Restart" : "Stop"} busy={busy} confirm={go} close={close}>
      <p>It finishes the batch it is in{action === "save" && ", and a savepoint is taken of where it stands"}. Nothing is lost: {restart ? "it goes on" : "when it is started again, it goes on"} where it was.</p>
    </Confirm>
  );
}

interface RescaleProps {
  pipeline: LivePipeline;
  busy: boolean;
  go: (partitions: number) => void;
  close: () => void;
}

function Rescale({ pipeline, busy, go, close }: RescaleProps) {
  const [typed, setTyped] = useState("");
  const partitions = Number(typed);
  const sound = Number.isInteger(partitions) && partitions > 0;
  return (
    <Confirm title={`Rescale ${pipeline.name}?`} action="Rescale" busy={busy || !sound} confirm={() => go(partitions)} close={close}>
      <p>It stops after its batch, its state{pipeline.status && pipeline.status.state_bytes > 0 && <> of {bytes(pipeline.status.state_bytes)}</>} is divided into other parts, and it goes on where it was. Nothing is lost.</p>
      <label className="field">Parts of the state, which are worked on at the same time
        <input inputMode="numeric" value={typed} onChange={(event) => setTyped(event.target.value)} autoComplete="off" autoFocus />
      </label>
    </Confirm>
  );
}
