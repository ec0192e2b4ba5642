/** Pipelines as they are now: a first list, then what the stream tells; those who watch hear at most twice a second. */
import { useEffect, useMemo, useState, useSyncExternalStore } from "react";
import { api, address, Refusal } from "../api/client";
import type { LivePipeline, Pipeline } from "../api/types";
import { merged } from "../logic/merged";
import { useSession } from "../session";
import { type Connection, listen } from "./stream";

const PAUSE_MS = 500;

export interface Seen {
  /** Null until the first list has come. */
  pipelines: ReadonlyMap<string, LivePipeline> | null;
  connection: Connection;
  refusal: Refusal | null;
}

class Watched {
  private seen: Seen = { pipelines: null, connection: "connecting", refusal: null };
  private news = new Map<string, LivePipeline | null>();
  /** What the stream has told since the list was last asked for. */
  private heard = new Map<string, LivePipeline | null>();
  private listeners = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stop: (() => void) | undefined;

  constructor(
    private readonly name: string | undefined,
    private readonly outside: () => void,
  ) {}

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  now = (): Seen => this.seen;

  start(): void {
    this.stop = listen({
      address: () => address("/api/v1/stream", { query: { pipeline: this.name } }),
      on: {
        pipeline: (data) => this.note((data as LivePipeline).name, data as LivePipeline),
        gone: (data) => this.note((data as { name: string }).name, null),
        // The store of the server does not answer; what is shown is old.
        trouble: () => this.change({ connection: "lost" }),
      },
      connection: (connection) => {
        this.change({ connection });
        // A stream that begins anew does not tell of what went while it was cut.
        if (connection === "connecting") void this.load();
      },
      outside: this.outside,
    });
  }

  end(): void {
    this.stop?.();
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private async load(): Promise<void> {
    const heard = new Map<string, LivePipeline | null>();
    this.heard = heard;
    try {
      const found = this.name === undefined ? await all() : [await api.get("/api/v1/pipelines/{name}", { path: { name: this.name } })];
      this.change({ pipelines: merged(found, this.seen.pipelines, heard), refusal: null });
    } catch (error) {
      if (error instanceof Refusal && error.status === 401) this.outside();
      else if (error instanceof Refusal) this.change({ refusal: error });
    }
  }

  private note(name: string, news: LivePipeline | null): void {
    this.news.set(name, news);
    this.heard.set(name, news);
    if (this.seen.connection === "lost") this.change({ connection: "live" });
    this.timer ??= setTimeout(() => this.tell(), PAUSE_MS);
  }

  private tell(): void {
    this.timer = undefined;
    const pipelines = new Map(this.seen.pipelines ?? []);
    for (const [name, each] of this.news) {
      if (each) pipelines.set(name, each);
      else pipelines.delete(name);
    }
    this.news = new Map();
    this.change({ pipelines, refusal: null });
  }

  private change(part: Partial<Seen>): void {
    this.seen = { ...this.seen, ...part };
    for (const listener of this.listeners) listener();
  }
}

async function all(): Promise<Pipeline[]> {
  const found: Pipeline[] = [];
  let after: string | undefined;
  do {
    const page = await api.get("/api/v1/pipelines", { query: { limit: 1000, after } });
    found.push(...page.items);
    after = page.next ?? undefined;
  } while (after !== undefined);
  return found;
}

/** All pipelines, or one. */
export function usePipelines(name?: string): Seen {
  const { leave } = useSession();
  const watched = useMemo(() => new Watched(name, leave), [name, leave]);
  useEffect(() => {
    watched.start();
    return () => watched.end();
  }, [watched]);
  return useSyncExternalStore(watched.subscribe, watched.now);
}

/** The time, again and again, for what is told as "12 s ago". */
export function useNow(every: number, now: () => number): number {
  const [time, setTime] = useState(now);
  useEffect(() => {
    const timer = setInterval(() => setTime(now()), every);
    return () => clearInterval(timer);
  }, [every, now]);
  return time;
}
