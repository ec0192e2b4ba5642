/** Instead of applying a change at once: the new version runs beside the old one first. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "react-router";
import { cutover } from "../../api/cutover";
import type { Plan } from "../../api/types";
import { lost } from "../../logic/plan";
import { useToasts } from "../../ui/toasts";
import type { File } from "./editing";

interface Props {
  name: string;
  file: File;
  plan: Plan;
  begun: () => void;
}

export function RunBeside({ name, file, plan, begun }: Props) {
  const toasts = useToasts();
  const client = useQueryClient();
  const navigate = useNavigate();
  const begin = useMutation({
    mutationFn: () => cutover.start(name, file, lost(plan)),
    onSuccess: () => {
      begun();
      void client.invalidateQueries();
      void navigate(`/pipelines/${encodeURIComponent(name)}/cutover`);
    },
    onError: (error) => toasts.failed(error),
  });
  return (
    <button type="button" title="It follows what runs, is compared with it, and takes over when you say so" disabled={begin.isPending} onClick={() => begin.mutate()}>
      {begin.isPending ? "Beginning…" : "Run beside"}
    </button>
  );
}
