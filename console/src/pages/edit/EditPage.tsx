/** Editing a pipeline: its file, or an earlier version of it. */
import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearchParams } from "react-router";
import { api } from "../../api/client";
import { changed } from "../../logic/build/document";
import { useSession } from "../../session";
import { Empty, Loading, Refused } from "../../ui/states";
import { Builder } from "../build/Builder";
import { Writer } from "./Writer";

export default function EditPage() {
  const { name = "" } = useParams();
  const [query] = useSearchParams();
  const { may, who } = useSession();
  const asked = Number(query.get("version"));
  const found = useQuery({
    queryKey: ["edit", name, asked],
    queryFn: async () => {
      const number = asked > 0 ? asked : (await api.get("/api/v1/pipelines/{name}", { path: { name } })).version;
      return api.get("/api/v1/pipelines/{name}/versions/{number}", { path: { name, number } });
    },
    // What somebody writes is not replaced by what is loaded meanwhile.
    staleTime: Infinity,
    gcTime: 0,
    refetchOnWindowFocus: false,
  });
  const back = <Link to={`/pipelines/${encodeURIComponent(name)}`}>{name}</Link>;
  if (!may("author")) return <Empty title="You may not edit pipelines"><p>It takes the role author; you are {who.role}.</p>{back}</Empty>;
  if (found.error) return <Refused error={found.error} again={() => void found.refetch()} />;
  if (!found.data) return <Loading what={name} />;
  const { kind, text, number } = found.data;
  if (kind === "py" && !may("coder")) {
    return <Empty title="You may not edit pipelines in Python"><p>They run code on the server, so it takes the role coder; you are {who.role}.</p>{back}</Empty>;
  }
  const fork = query.get("fork");
  if (fork !== null && kind === "yaml") {
    const begin = changed(text, [{ do: "set", path: ["metadata", "name"], value: `${name}_fork` }]);
    return (
      <>
        <title>{`Fork ${name} · Penstock`}</title>
        <div className="head-line"><h1>Fork {back} <span className="quiet">from {fork}</span></h1></div>
        <p className="quiet">It begins where the savepoint stands. Give it a name and sinks of its own: two pipelines must not write to the same place.</p>
        <Builder key={`${name} ${fork}`} path={`${name}_fork.yaml`} initial={begin} draft={`${name} fork ${fork}`} fork={{ pipeline: name, savepoint: fork }} />
      </>
    );
  }
  return (
    <>
      <title>{`Edit ${name} · Penstock`}</title>
      <div className="head-line"><h1>Edit {back} <span className="quiet">version {number}</span></h1></div>
      {kind === "yaml"
        ? <Builder key={`${name} ${number}`} path={`${name}.yaml`} initial={text} draft={`${name} ${number}`} name={name} />
        : <Writer key={`${name} ${number}`} path={`${name}.${kind}`} initial={text} draft={`${name} ${number}`} name={name} />}
    </>
  );
}
