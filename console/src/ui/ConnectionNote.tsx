/** Says that numbers have stopped moving because the stream of news is cut, not because nothing happens. */
import { useEffect, useState } from "react";
import type { Connection } from "../live/stream";

const PATIENCE_MS = 3000;

export function ConnectionNote({ connection }: { connection: Connection }) {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setShown(connection !== "live"), connection === "live" ? 0 : PATIENCE_MS);
    return () => clearTimeout(timer);
  }, [connection]);
  if (!shown) return null;
  return <p className="note" role="status">The server does not answer; what is shown is what was last heard. Trying again…</p>;
}
