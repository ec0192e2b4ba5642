/** A first pipeline, or another: something that runs as it is, to be changed. */
import { useState } from "react";
import { useSession } from "../../session";
import { Empty } from "../../ui/states";
import { Builder } from "../build/Builder";

const START = `# A pipeline that runs as it is: made-up page views, counted by article every ten seconds.
apiVersion: penstock/v1
kind: Pipeline
metadata:
  name: first
  labels: {}
spec:
  sources:
    views:
      generator: {dataset: page_views, rate: 100}
      eventTime: {column: ts, maxDelay: 5 seconds}
  steps:
    articles:
      from: views
      window: {size: 10 seconds, by: [article], values: {views: count(*)}}
  sinks:
    counts:
      from: articles
      sqlite: {path: ./out/first.db, table: articles, key: [window_start, article]}
`;

const EMPTY = `apiVersion: penstock/v1
kind: Pipeline
metadata:
  name: unnamed
spec:
  sources: {}
  steps: {}
  sinks: {}
`;
const BEGINNINGS = [["Example", START], ["Empty", EMPTY]] as const;

export default function NewPage() {
  const { may, who } = useSession();
  const [begin, setBegin] = useState<string>(START);
  if (!may("author")) return <Empty title="You may not add pipelines">It takes the role author; you are {who.role}.</Empty>;
  return (
    <>
      <title>New pipeline · Penstock</title>
      <div className="head-line">
        <h1>New pipeline</h1>
        <div className="ranges" role="group" aria-label="Begin with">
          {BEGINNINGS.map(([title, text]) => <button key={title} type="button" aria-pressed={begin === text} onClick={() => setBegin(text)}>{title}</button>)}
        </div>
      </div>
      <Builder key={begin} path="new.yaml" initial={begin} draft={begin === START ? "new" : "new empty"} />
    </>
  );
}
