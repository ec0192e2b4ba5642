/** Events on a line of time, and the newest in words. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";
import { api, serverNow } from "../../../api/client";
import type { Event } from "../../../api/types";
import { useNow } from "../../../live/pipelines";
import { clock, utc } from "../../../logic/format";
import { type Mark, marks, tone } from "../../../logic/timeline";
import { Time } from "../../../ui/small";

const SHOWN = 5;

export function Timeline({ name, seconds }: { name: string; seconds: number }) {
  const now = useNow(5000, serverNow);
  const [chosen, setChosen] = useState<readonly Event[] | null>(null);
  const { data } = useQuery({
    queryKey: ["events", name, "line"],
    queryFn: () => api.get("/api/v1/events", { query: { pipeline: name, limit: 300 } }),
    refetchInterval: 5000,
  });
  if (!data) return null;
  const found = marks(data.items, now - seconds * 1000, now);
  const listed = chosen ?? data.items.slice(0, SHOWN);
  return (
    <section className="card timeline" aria-label="Events">
      <svg viewBox="0 0 1000 34" preserveAspectRatio="none" aria-hidden="true">
        <line className="rail" x1="0" x2="1000" y1="17" y2="17" vectorEffect="non-scaling-stroke" />
      </svg>
      <div className="marks" role="group" aria-label="Events on the line of time">
        {found.map((mark) => (
          <button
            key={mark.events[0]?.id} type="button" className={`mark ${mark.tone}`} style={{ left: `${mark.place * 100}%` }}
            title={titleOf(mark)} aria-label={titleOf(mark)} aria-pressed={chosen === mark.events} onClick={() => setChosen(mark.events)}
          >
            {mark.events.length > 1 ? mark.events.length : ""}
          </button>
        ))}
      </div>
      {listed.length === 0 ? <p className="quiet">Nothing has happened yet.</p> : (
        <ol>
          {listed.map((event) => (
            <li key={event.id} className={tone(event)}><Time at={event.at} /><span>{event.text}</span></li>
          ))}
        </ol>
      )}
      <p className="quiet foot">
        {chosen ? <button type="button" onClick={() => setChosen(null)}>Show the newest</button> : <Link to={`/pipelines/${encodeURIComponent(name)}/events`}>All events</Link>}
        {found.length === 0 && <span> No event in the time shown above; since <span title={utc(now - seconds * 1000)}>{clock(now - seconds * 1000, now)}</span>.</span>}
      </p>
    </section>
  );
}

function titleOf({ events }: Mark): string {
  const first = events[0];
  if (!first) return "";
  return events.length === 1 ? `${utc(first.at)}: ${first.text}` : `${events.length} events from ${utc(first.at)} on`;
}
