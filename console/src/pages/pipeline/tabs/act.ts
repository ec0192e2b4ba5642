/** Asks for work on the state of a pipeline, says that it is being done, and has what it changes looked at anew. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useToasts } from "../../../ui/toasts";

export function useAct(name: string, after: () => void) {
  const toasts = useToasts();
  const client = useQueryClient();
  return useMutation({
    mutationFn: (act: () => Promise<unknown>) => act(),
    onSuccess: () => toasts.done(`${name}: it is being done`),
    onError: (error) => toasts.failed(error),
    onSettled: () => {
      after();
      void client.invalidateQueries({ queryKey: ["savepoints", name] });
      void client.invalidateQueries({ queryKey: ["operations", name] });
    },
  });
}
