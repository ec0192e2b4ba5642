/** The file as it was sent, in every version; an earlier one can be edited and applied again. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";
import { api } from "../../../api/client";
import type { LivePipeline } from "../../../api/types";
import { useSession } from "../../../session";
import { Time } from "../../../ui/small";
import { Loading, Refused } from "../../../ui/states";
import "./spec.css";

export default function SpecTab({ pipeline }: { pipeline: LivePipeline }) {
  const { name, version } = pipeline;
  const { may } = useSession();
  const [chosen, setChosen] = useState<number | null>(null);
  const number = chosen ?? version;
  const versions = useQuery({
    queryKey: ["versions", name, version],
    queryFn: () => api.get("/api/v1/pipelines/{name}/versions", { path: { name }, query: { limit: 200 } }),
  });
  const text = useQuery({
    queryKey: ["version", name, number],
    queryFn: () => api.get("/api/v1/pipelines/{name}/versions/{number}", { path: { name, number } }),
    staleTime: Infinity,
  });
  if (versions.error && !versions.data) return <Refused error={versions.error} again={() => void versions.refetch()} />;
  if (!versions.data) return <Loading what="versions" />;
  return (
    <div className="two">
      <nav aria-label="Versions" className="versions">
        {versions.data.items.map((each) => (
          <button key={each.number} type="button" aria-pressed={each.number === number} onClick={() => setChosen(each.number)}>
            <b>Version {each.number}</b>{each.number === version && <span className="badge healthy">in use</span>}
            <span className="quiet"><Time at={each.createdAt} /> by {each.createdBy}</span>
          </button>
        ))}
      </nav>
      <section aria-label={`Version ${number}`}>
        {may("author") && number !== version && (
          <p className="buttons">
            <Link className="button" to={`/pipelines/${encodeURIComponent(name)}/edit?version=${number}`}>Open version {number} in the editor</Link>
            <span className="quiet">There, plan shows what going back to it costs.</span>
          </p>
        )}
        {text.data ? <pre className="spec" tabIndex={0}>{text.data.text}</pre> : text.error ? <Refused error={text.error} /> : <Loading what="the file" />}
      </section>
    </div>
  );
}
