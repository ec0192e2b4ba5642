/** What the server says of a text, and making it so; for the plain editor and the builder. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useNavigate } from "react-router";
import { api } from "../../api/client";
import type { Plan } from "../../api/types";
import { lost } from "../../logic/plan";
import { useToasts } from "../../ui/toasts";

const TYPING_MS = 500;

export interface File {
  path: string;
  text: string;
}

/** A value once it has not changed for a moment. */
export function useSettled<T>(value: T, ms = TYPING_MS): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

/** What the server says of the text, once nobody has typed for a moment. */
export function useChecked(path: string, text: string) {
  const settled = useSettled(text);
  return useQuery({
    queryKey: ["validate", path, settled],
    queryFn: ({ signal }) => api.post("/api/v1/validate", { body: { files: [{ path, text: settled }] }, signal }),
    staleTime: Infinity,
    gcTime: 10_000,
    retry: false,
  });
}

export function usePlan(files: File[]) {
  return useMutation({ mutationFn: (target: string | null) => api.post("/api/v1/plan", { body: { files, absent: "keep", target } }) });
}

interface Applied {
  files: File[];
  after: () => void;
  applied: () => void;
}

export function useApply({ files, after, applied }: Applied) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const toasts = useToasts();
  return useMutation({
    // With the checksum, what was shown is what is done, or nothing is.
    mutationFn: ({ plan, target }: { plan: Plan; target: string | null }) =>
      api.post("/api/v1/apply", { body: { files, absent: "keep", plan: plan.checksum, target, ...named(plan) } }),
    onSuccess: (done) => {
      applied();
      void client.invalidateQueries();
      const first = done.steps[0];
      toasts.done(first ? `${first.name}: ${first.reason || first.action}` : "Done");
      void navigate(first ? `/pipelines/${encodeURIComponent(first.name)}` : "/");
    },
    onError: (error) => toasts.failed(error),
    onSettled: after,
  });
}

/** What is lost is named, where the server asks for it. */
function named(plan: Plan): object {
  const found = lost(plan);
  return found.length > 0 ? { lose: found } : {};
}

/** The browser asks before it throws away what was written. */
export function useGuard(unsaved: boolean): void {
  useEffect(() => {
    if (!unsaved) return;
    const ask = (event: BeforeUnloadEvent) => event.preventDefault();
    addEventListener("beforeunload", ask);
    return () => removeEventListener("beforeunload", ask);
  }, [unsaved]);
}
