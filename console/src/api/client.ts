/** The one way to the API: typed by what the server says of itself, errors as `Refusal`. */
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];
export type Problem = Schemas["ProblemDetails"];

type Method = "get" | "post" | "delete";
type Op<P extends keyof paths, M extends Method> = NonNullable<paths[P][M]>;
export type PathWith<M extends Method> = { [P in keyof paths]: paths[P][M] extends object ? P : never }[keyof paths];

type Json<R, S extends number> = R extends Record<S, { content: { "application/json": infer A } }> ? A : never;
type AnswerOf<O> = O extends { responses: infer R } ? Json<R, 200> | Json<R, 201> | Json<R, 202> : never;
type Part<O, K extends "path" | "query"> = O extends { parameters: Record<K, infer V> }
  ? { [key in K]: V }
  : O extends { parameters: { [key in K]?: infer V } }
    ? { [key in K]?: V }
    : object;
type Body<O> = O extends { requestBody: { content: { "application/json": infer B } } }
  ? { body: B }
  : O extends { requestBody?: { content: { "application/json": infer B } } }
    ? { body?: B }
    : object;
export type Asked<P extends keyof paths, M extends Method> = Part<Op<P, M>, "path"> &
  Part<Op<P, M>, "query"> &
  Body<Op<P, M>> & { signal?: AbortSignal; ifMatch?: number };
export type Answer<P extends keyof paths, M extends Method> = AnswerOf<Op<P, M>>;

/** What the server answered instead of what was asked for. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly problem: Problem,
  ) {
    super(problem.title);
  }
}

/** Others are being served; asked again a little later, the server has an answer. */
export const WHILE_BUSY = {
  retry: (failed: number, error: unknown) => error instanceof Refusal && (error.status === 503 || error.status === 429) && failed < 20,
  retryDelay: 1000,
};

interface AnyAsked {
  path?: object;
  query?: object | undefined;
  body?: unknown;
  signal?: AbortSignal;
  ifMatch?: number;
}

/** The path with its parameters filled in, each as one segment whatever it holds. */
export function address(path: string, asked: AnyAsked = {}): string {
  const values = (asked.path ?? {}) as Record<string, string | number>;
  const filled = path.replace(/\{(\w+)\}/g, (_, key: string) => encodeURIComponent(String(values[key])));
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(asked.query ?? {})) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== "") query.append(key, String(each));
    }
  }
  const text = query.toString();
  return text ? `${filled}?${text}` : filled;
}

let skew = 0;

/** Now as the server's clock has it: times in answers are compared with this, not with the browser's clock. */
export function serverNow(): number {
  return Date.now() + skew;
}

function noteClock(response: Response): void {
  const told = Date.parse(response.headers.get("Date") ?? "");
  // The header knows whole seconds only, so small differences mean nothing.
  if (!Number.isNaN(told)) skew = Math.abs(told - Date.now()) > 2000 ? told - Date.now() : 0;
}

async function send(method: Method, path: string, asked: AnyAsked): Promise<unknown> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (asked.body !== undefined) headers["Content-Type"] = "application/json";
  if (asked.ifMatch !== undefined) headers["If-Match"] = `"${asked.ifMatch}"`;
  let response: Response;
  try {
    response = await fetch(address(path, asked), {
      method: method.toUpperCase(),
      headers,
      credentials: "same-origin",
      ...(asked.body === undefined ? {} : { body: JSON.stringify(asked.body) }),
      ...(asked.signal ? { signal: asked.signal } : {}),
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Refusal(0, offline(path));
  }
  noteClock(response);
  if (response.status === 204) return undefined;
  const text = await response.text();
  if (response.ok) return text ? JSON.parse(text) : undefined;
  throw new Refusal(response.status, problemIn(text, response.status, path));
}

function problemIn(text: string, status: number, path: string): Problem {
  try {
    const found = JSON.parse(text) as Problem;
    if (typeof found.code === "string") return found;
  } catch {
    // Something between here and the server has answered.
  }
  return {
    type: "about:blank", title: `The server answered with status ${status}`, status,
    detail: "Try again; if it stays so, look at the log of the server.", instance: path, code: "HTTP", problems: [],
  };
}

function offline(path: string): Problem {
  return {
    type: "about:blank", title: "The server does not answer", status: 0,
    detail: "Pipelines go on without it. Check that `penstock serve` runs and that this machine reaches it.",
    instance: path, code: "OFFLINE", problems: [],
  };
}

export const api = {
  get: <P extends PathWith<"get">>(path: P, asked: Asked<P, "get">) =>
    send("get", path, asked as AnyAsked) as Promise<Answer<P, "get">>,
  post: <P extends PathWith<"post">>(path: P, asked: Asked<P, "post">) =>
    send("post", path, asked as AnyAsked) as Promise<Answer<P, "post">>,
  delete: <P extends PathWith<"delete">>(path: P, asked: Asked<P, "delete">) =>
    send("delete", path, asked as AnyAsked) as Promise<Answer<P, "delete">>,
};
