/** Light or dark: as the system says, until somebody chooses. */
import { useCallback, useState } from "react";

export type Theme = "light" | "dark";
const KEY = "penstock-theme";

function chosen(): Theme | null {
  try {
    const found = localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : null;
  } catch {
    return null;
  }
}

function current(): Theme {
  return chosen() ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

export function applyTheme(): void {
  const found = chosen();
  if (found) document.documentElement.dataset.theme = found;
}

export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState(current);
  const toggle = useCallback(() => {
    const next = current() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem(KEY, next);
    } catch {
      // Without storage it holds until the page is left.
    }
    document.documentElement.dataset.theme = next;
    setTheme(next);
    window.dispatchEvent(new CustomEvent("penstock-theme"));
  }, []);
  return [theme, toggle];
}
