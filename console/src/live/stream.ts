/** Server-sent events: opened again when they break off, closed while nobody looks. */
import { api, Refusal } from "../api/client";

export type Connection = "connecting" | "live" | "lost";

export interface Listening {
  /** The address, asked for anew at every attempt so that it can say where to go on. */
  address: () => string;
  on: Record<string, (data: unknown) => void>;
  connection: (state: Connection) => void;
  /** The token has ended. */
  outside: () => void;
}

const LONGEST_WAIT = 15_000;

/** Listens until the function it returns is called. */
export function listen(to: Listening): () => void {
  let source: EventSource | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let failures = 0;
  let over = false;

  function open(): void {
    clearTimeout(timer);
    if (over || source) return;
    to.connection("connecting");
    const opened = new EventSource(to.address());
    source = opened;
    opened.onopen = () => {
      failures = 0;
      to.connection("live");
    };
    for (const [kind, take] of Object.entries(to.on)) {
      opened.addEventListener(kind, (event) => take(JSON.parse((event as MessageEvent<string>).data)));
    }
    opened.onerror = () => void broken();
  }

  function close(): void {
    source?.close();
    source = null;
  }

  async function broken(): Promise<void> {
    close();
    to.connection("lost");
    failures += 1;
    if (await isOutside()) {
      over = true;
      to.outside();
      return;
    }
    if (!over && !document.hidden) timer = setTimeout(open, wait(failures));
  }

  // A browser opens few connections to one server, and tabs in the background would hold them all.
  function seen(): void {
    if (document.hidden) {
      clearTimeout(timer);
      close();
    } else {
      open();
    }
  }

  document.addEventListener("visibilitychange", seen);
  open();
  return () => {
    over = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
    close();
  };
}

export function wait(failures: number): number {
  return Math.min(LONGEST_WAIT, 500 * 2 ** Math.min(failures, 10));
}

/** A stream does not tell why it was refused; another request does. */
async function isOutside(): Promise<boolean> {
  try {
    await api.get("/api/v1/whoami", {});
    return false;
  } catch (error) {
    return error instanceof Refusal && error.status === 401;
  }
}
