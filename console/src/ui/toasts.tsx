/** Short words on what was done, or why not; screen readers hear them. */
import { createContext, type ReactNode, useCallback, useContext, useMemo, useState } from "react";
import { Refusal } from "../api/client";

interface Toast {
  id: number;
  text: string;
  bad: boolean;
}

interface Toasts {
  done: (text: string) => void;
  failed: (error: unknown) => void;
}

const Here = createContext<Toasts | null>(null);
const SHOWN_MS = 7000;
let count = 0;

export function useToasts(): Toasts {
  const found = useContext(Here);
  if (!found) throw new Error("there is no place for toasts here");
  return found;
}

export function ToastProvider({ children }: { children: ReactNode }) {
  const [toasts, setToasts] = useState<Toast[]>([]);
  const remove = useCallback((id: number) => setToasts((now) => now.filter((each) => each.id !== id)), []);
  const add = useCallback((text: string, bad: boolean) => {
    const id = (count += 1);
    setToasts((now) => [...now.slice(-3), { id, text, bad }]);
    if (!bad) setTimeout(() => remove(id), SHOWN_MS);
  }, [remove]);
  const value = useMemo<Toasts>(() => ({ done: (text) => add(text, false), failed: (error) => add(told(error), true) }), [add]);
  return (
    <Here.Provider value={value}>
      {children}
      <div className="toasts" role="status" aria-live="polite">
        {toasts.map(({ id, text, bad }) => (
          <div key={id} className={bad ? "toast bad" : "toast"}>
            <span>{text}</span>
            <button type="button" className="plain" aria-label="Close this message" onClick={() => remove(id)}>✕</button>
          </div>
        ))}
      </div>
    </Here.Provider>
  );
}

function told(error: unknown): string {
  return error instanceof Refusal ? `${error.problem.title}. ${error.problem.detail}` : "It did not work.";
}
