/** Small pieces that many pages use. */
import { serverNow } from "../api/client";
import { useNow } from "../live/pipelines";
import { ago, clock, utc } from "../logic/format";
import { meaning } from "../logic/health";

/** Sign and word; colour only repeats what they say. */
export function StateBadge({ state }: { state: string }) {
  const { group, word, sign } = meaning(state);
  return (
    <span className={`badge ${group}`}>
      <span aria-hidden="true">{sign}</span> {word}
    </span>
  );
}

export function Severity({ severity, state }: { severity: string; state: string }) {
  const group = state === "firing" ? (severity === "page" ? "attention" : "catching") : "stopped";
  return <span className={`badge ${group}`}>{state}</span>;
}

/** A moment where the reader is, UTC when pointed at. */
export function Time({ at }: { at: string | null | undefined }) {
  return at ? <time dateTime={at} title={utc(at)}>{clock(at, serverNow())}</time> : <>–</>;
}

/** How long ago; it counts on by itself. */
export function Ago({ at }: { at: string | null | undefined }) {
  const now = useNow(1000, serverNow);
  return at ? <time dateTime={at} title={utc(at)}>{ago(at, now)}</time> : <>–</>;
}

export function Labels({ labels }: { labels: Record<string, string> }) {
  return (
    <span className="labels">
      {Object.entries(labels).map(([key, value]) => <span key={key} className="label">{key}={value}</span>)}
    </span>
  );
}

/** Words in which backticks mark what is written word by word. */
export function Prose({ text }: { text: string }) {
  return <>{text.split("`").map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part))}</>;
}
