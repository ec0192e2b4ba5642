/** Roles in the order of what they may do; the server decides, this only keeps buttons away that it would refuse. */
import type { Role } from "../api/types";

export const ROLES: readonly Role[] = ["viewer", "operator", "author", "coder", "admin"];

export function covers(mine: Role, needed: Role): boolean {
  return ROLES.indexOf(mine) >= ROLES.indexOf(needed);
}

/** Where to go after login: a page of this console, whatever the address says. */
export function safeNext(next: string | null): string {
  return next !== null && /^\/(?![/\\])/.test(next) && !next.startsWith("/login") ? next : "/";
}

/** The code in the address of a link that logs in once; empty if there is none. */
export function codeOf(hash: string): string {
  return new URLSearchParams(hash.replace(/^#/, "")).get("code") ?? "";
}
