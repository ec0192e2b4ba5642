/** What is shown while there is nothing to show: loading, nothing there, refused, not allowed. Each says what is next. */
import type { ReactNode } from "react";
import { Refusal } from "../api/client";

export function Loading({ what }: { what: string }) {
  return (
    <div className="state" role="status">
      <div className="skeleton" aria-hidden="true"><i /><i /><i /></div>
      <p className="quiet">Loading {what}…</p>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="state">
      <h2>{title}</h2>
      <div className="quiet">{children}</div>
    </div>
  );
}

export function Refused({ error, again }: { error: unknown; again?: () => void }) {
  const known = error instanceof Refusal ? error.problem : null;
  const forbidden = known?.status === 403;
  return (
    <div className="state" role="alert">
      <h2>{forbidden ? "You may not see this" : (known?.title ?? "This page has failed")}</h2>
      {forbidden && <p>{known.title}</p>}
      <p className="quiet">{known?.detail ?? "Load the page again. If it stays so, it is a bug of the console."}</p>
      {again && !forbidden && <button type="button" onClick={again}>Try again</button>}
    </div>
  );
}

/** Every mistake that an answer names, each with its place. */
export function Mistakes({ error }: { error: unknown }) {
  if (!(error instanceof Refusal)) return null;
  const items = error.problem.problems.length > 0 ? error.problem.problems : null;
  return (
    <ul className="mistakes" role="alert">
      {items?.map((item, index) => (
        <li key={index}>
          {place(item.location) && <span className="mono quiet">{place(item.location)} </span>}
          {item.message} <span className="quiet">{item.hint}</span>
        </li>
      )) ?? <li>{error.problem.title} <span className="quiet">{error.problem.detail}</span></li>}
    </ul>
  );
}

function place(location: Record<string, unknown> | null | undefined): string {
  return location?.line ? `line ${String(location.line)}` : "";
}
