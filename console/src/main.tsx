import { MutationCache, QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { BrowserRouter } from "react-router";
import { Refusal } from "./api/client";
import { Pages } from "./routes";
import "./styles/base.css";
import "./styles/parts.css";
import { applyTheme } from "./ui/theme";
import { ToastProvider } from "./ui/toasts";

applyTheme();
/** Whoever asks without a token any more is asked who they are, which leads to the login. */
function refused(error: Error): void {
  if (error instanceof Refusal && error.status === 401) void client.invalidateQueries({ queryKey: ["whoami"] });
}

const client: QueryClient = new QueryClient({
  queryCache: new QueryCache({ onError: (error, { queryKey }) => queryKey[0] !== "whoami" && refused(error) }),
  mutationCache: new MutationCache({ onError: refused }),
  defaultOptions: {
    queries: {
      // What was refused is refused again; only a server that does not answer is worth a second try.
      retry: (count, error) => count < 2 && error instanceof Refusal && [0, 429, 503].includes(error.status),
      refetchOnWindowFocus: true,
      staleTime: 2000,
    },
  },
});
const root = document.getElementById("root");
if (!root) throw new Error("the page has no root");
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <BrowserRouter>
        <ToastProvider>
          <Pages />
        </ToastProvider>
      </BrowserRouter>
    </QueryClientProvider>
  </StrictMode>,
);
