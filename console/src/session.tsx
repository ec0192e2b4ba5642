/** Who is here. The token itself lives in a cookie that scripts cannot read; pages know the name and the role only. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useCallback, useContext, useMemo } from "react";
import { Navigate, useLocation, useNavigate } from "react-router";
import { api, Refusal, type Schemas } from "./api/client";
import type { Role } from "./api/types";
import { covers } from "./logic/roles";
import { Loading, Refused } from "./ui/states";

interface Session {
  who: Schemas["WhoAmI"];
  may: (role: Role) => boolean;
  /** Whether nothing is kept from the caller, as what concerns all pipelines needs. */
  whole: boolean;
  /** Goes to the login, and comes back here after it. */
  leave: () => void;
}

const Here = createContext<Session | null>(null);

export function useSession(): Session {
  const found = useContext(Here);
  if (!found) throw new Error("there is no session here");
  return found;
}

export function SessionProvider({ children }: { children: ReactNode }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const { pathname, search } = useLocation();
  const asked = useQuery({ queryKey: ["whoami"], queryFn: () => api.get("/api/v1/whoami", {}), staleTime: 60_000 });
  const leave = useCallback(() => {
    const next = window.location.pathname + window.location.search;
    client.clear();
    void navigate(`/login?next=${encodeURIComponent(next)}`, { replace: true });
  }, [client, navigate]);
  const who = asked.data;
  const session = useMemo<Session | null>(
    () => who ? { who, may: (role) => covers(who.role, role), whole: Object.keys(who.scope).length === 0, leave } : null,
    [who, leave],
  );
  if (asked.error instanceof Refusal && asked.error.status === 401) {
    return <Navigate to={`/login?next=${encodeURIComponent(pathname + search)}`} replace />;
  }
  if (asked.error && !who) return <Refused error={asked.error} again={() => void asked.refetch()} />;
  if (!session) return <Loading what="Penstock" />;
  return <Here.Provider value={session}>{children}</Here.Provider>;
}
