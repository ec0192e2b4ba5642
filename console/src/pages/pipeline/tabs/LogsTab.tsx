/** The log as it is written: level, text, follow or pause. Lines are text, whatever they hold. */
import { useEffect, useRef, useState } from "react";
import { Link } from "react-router";
import { address, api, Refusal, serverNow } from "../../../api/client";
import type { LogLine } from "../../../api/types";
import { type Connection, listen } from "../../../live/stream";
import { clock, exact, plural, utc } from "../../../logic/format";
import { extended, keyOf, type Level, LEVELS } from "../../../logic/logs";
import { useSession } from "../../../session";
import { Loading, Refused } from "../../../ui/states";
import { useSettled } from "../../edit/editing";
import "./logs.css";

const FIRST_LINES = 500;
const TYPING_MS = 300;

export default function LogsTab({ name }: { name: string }) {
  const [level, setLevel] = useState<Level>("info");
  const [text, setText] = useState("");
  const [follow, setFollow] = useState(true);
  const grep = useSettled(text, TYPING_MS);
  return (
    <section aria-label="Log">
      <div className="log-choices">
        <label>
          <span className="unseen">Least level</span>
          <select value={level} onChange={(event) => setLevel(event.target.value as Level)}>
            {LEVELS.map((each) => <option key={each} value={each}>{each} and above</option>)}
          </select>
        </label>
        <label className="grow">
          <span className="unseen">Only lines with</span>
          <input type="search" placeholder="Only lines with…" value={text} maxLength={200} onChange={(event) => setText(event.target.value)} />
        </label>
        <button type="button" aria-pressed={follow} onClick={() => setFollow(!follow)}>{follow ? "❚❚ Pause" : "▶ Follow"}</button>
      </div>
      <Lines key={`${level} ${grep}`} name={name} level={level} grep={grep} follow={follow} pause={() => setFollow(false)} />
    </section>
  );
}

interface LinesProps {
  name: string;
  level: Level;
  grep: string;
  follow: boolean;
  pause: () => void;
}

function Lines({ name, level, grep, follow, pause }: LinesProps) {
  const { lines: all, error, connection } = useLog(name, level, grep);
  // While it is paused what was there stays, and new lines wait.
  const [lines, setLines] = useState(all);
  if (lines !== all && (follow || lines === null)) setLines(all);
  const held = all && lines ? all.length - 1 - all.lastIndexOf(lines.at(-1) as LogLine) : 0;
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, follow]);
  if (error) return <Refused error={error} />;
  if (!lines) return <Loading what="the log" />;
  return (
    <>
      <div
        ref={box} className="log" role="log" aria-live="off" aria-label={`Log of ${name}`} tabIndex={0}
        onWheel={(event) => event.deltaY < 0 && follow && pause()}
      >
        {lines.length === 0 && <p className="quiet">{grep || level !== "info" ? "No line is like that yet." : "Nothing has been written yet."} New lines appear here by themselves.</p>}
        {lines.map((line) => <Line key={keyOf(line)} line={line} />)}
      </div>
      <p className="quiet number" role="status">
        {plural(lines.length, "line")}{held > 0 && `, ${plural(held, "new one")} waiting`}{connection === "lost" && " · the server does not answer, trying again"}
      </p>
    </>
  );
}

function Line({ line }: { line: LogLine }) {
  return (
    <div className={`line ${line.level.toLowerCase()}`}>
      <time dateTime={line.at} title={utc(line.at)}>{clock(line.at, serverNow())}</time>
      <span className="level">{line.level}</span>
      <span className="what">
        {line.code && <code>{line.code}</code>} {line.text}
        {line.batch !== null && line.level !== "INFO" && <> <Link to={`/pipelines/${encodeURIComponent(line.pipeline)}/batches?batch=${line.batch}`}>batch {exact(line.batch)}</Link></>}
        {line.executor && <span className="quiet"> (executor {line.executor.id} on {line.executor.host})</span>}
        {line.more && <details><summary>as it was written</summary><pre>{line.more}</pre></details>}
      </span>
    </div>
  );
}

interface Log {
  lines: readonly LogLine[] | null;
  error: unknown;
  connection: Connection;
}

/** The newest lines, then what is written. */
function useLog(name: string, level: Level, grep: string): Log {
  const { leave } = useSession();
  const [lines, setLines] = useState<LogLine[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [connection, setConnection] = useState<Connection>("connecting");
  useEffect(() => {
    let last: LogLine | undefined;
    let fresh: LogLine[] = [];
    let stop: (() => void) | undefined;
    let over = false;
    const timer = setInterval(() => {
      if (fresh.length === 0) return;
      const news = fresh;
      fresh = [];
      setLines((now) => extended(now ?? [], news));
    }, 250);
    const begin = async () => {
      const first = await api.get("/api/v1/pipelines/{name}/logs", { path: { name }, query: { level, grep: grep || undefined, limit: FIRST_LINES } });
      if (over) return;
      last = first.at(-1);
      setLines(first);
      stop = listen({
        address: () => address("/api/v1/logs/stream", { query: { pipeline: name, level, grep, after: last && keyOf(last) } }),
        on: {
          log: (data) => {
            last = data as LogLine;
            fresh.push(last);
          },
        },
        connection: setConnection,
        outside: leave,
      });
    };
    begin().catch((failed: unknown) => (failed instanceof Refusal && failed.status === 401 ? leave() : setError(failed)));
    return () => {
      over = true;
      clearInterval(timer);
      stop?.();
    };
  }, [name, level, grep, leave]);
  return { lines, error, connection };
}

