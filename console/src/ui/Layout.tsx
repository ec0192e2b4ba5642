/** The frame of every page: where one can go, who one is, and the keys. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Suspense, useEffect, useRef, useState } from "react";
import { NavLink, Outlet, useLocation, useNavigate } from "react-router";
import { api } from "../api/client";
import { HELP, type KeyState, pressed } from "../logic/keys";
import { forgetDrafts } from "../pages/edit/drafts";
import { useSession } from "../session";
import { Dialog } from "./Dialog";
import { Failsafe } from "./Failsafe";
import { Loading } from "./states";
import { useTheme } from "./theme";

export function Layout() {
  const { who, may, whole } = useSession();
  const [help, setHelp] = useState(false);
  const [theme, toggle] = useTheme();
  const { pathname } = useLocation();
  useKeys(() => setHelp(true));
  useEffect(() => {
    for (const active of document.querySelectorAll(".top nav a.active, .tabs a.active")) active.scrollIntoView({ inline: "center", block: "nearest" });
  }, [pathname]);
  const firing = useQuery({
    queryKey: ["alerts", "firing"],
    queryFn: () => api.get("/api/v1/alerts", { query: { state: "firing", limit: 1000 } }),
    refetchInterval: 15_000,
  });
  const count = firing.data?.items.length ?? 0;
  return (
    <>
      <a className="skip" href="#main">Skip to the content</a>
      <header className="top">
        <NavLink to="/" className="brand" aria-label="Penstock, all pipelines"><img src="/icon.svg" alt="" width="22" height="22" /> Penstock</NavLink>
        <nav aria-label="Main">
          <NavLink to="/" end>Pipelines</NavLink>
          {may("author") && <NavLink to="/new">Build</NavLink>}
          <NavLink to="/alerts">Alerts{count > 0 && <span className="count" aria-label={`${count} firing`}>{count}</span>}</NavLink>
          <NavLink to="/events">Events</NavLink>
          <NavLink to="/savepoints">Savepoints</NavLink>
          <NavLink to="/targets">Targets</NavLink>
          {may("admin") && whole && <NavLink to="/tokens">Tokens</NavLink>}
          {may("admin") && whole && <NavLink to="/audit">Audit</NavLink>}
        </nav>
        <div className="me">
          <button type="button" className="plain" onClick={() => setHelp(true)} aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)">?</button>
          <button type="button" className="plain" onClick={toggle} aria-label={`Switch to ${theme === "dark" ? "light" : "dark"} colours`} title="Light or dark">
            {theme === "dark" ? "☀" : "☾"}
          </button>
          <Me who={who.who} role={who.role} meaning={who.meaning} />
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        <Failsafe key={pathname.split("/").slice(0, 3).join("/")}>
          <Suspense fallback={<Loading what="the page" />}>
            <Outlet />
          </Suspense>
        </Failsafe>
      </main>
      {help && <Help close={() => setHelp(false)} />}
    </>
  );
}

function Me({ who, role, meaning }: { who: string; role: string; meaning: string }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const leave = async () => {
    try {
      await api.post("/api/v1/logout", {});
    } finally {
      client.clear();
      forgetDrafts();
      void navigate("/login", { replace: true });
    }
  };
  return (
    <details className="menu">
      <summary><span className="who">{who}</span></summary>
      <div className="menu-box">
        <p><b>{who}</b></p>
        <p className="quiet">Role {role}: {meaning}</p>
        <button type="button" onClick={() => void leave()}>Log out</button>
      </div>
    </details>
  );
}

function Help({ close }: { close: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" close={close}>
      <dl className="keys">
        {HELP.map(([key, words]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{words}</dd></div>)}
      </dl>
      <div className="buttons end"><button type="button" onClick={close} autoFocus>Close</button></div>
    </Dialog>
  );
}

function useKeys(help: () => void): void {
  const navigate = useNavigate();
  const { pathname } = useLocation();
  const { may } = useSession();
  const state = useRef<KeyState>({ prefix: null });
  useEffect(() => {
    const pipeline = /^\/pipelines\/[^/]+/.exec(pathname)?.[0];
    const go: Record<string, () => unknown> = {
      "/": () => document.getElementById("search")?.focus() ?? navigate("/?focus"),
      "g p": () => navigate("/"),
      "g a": () => navigate("/alerts"),
      "g e": () => navigate("/events"),
      "g t": () => navigate("/targets"),
      n: () => may("author") && navigate("/new"),
      e: () => pipeline && may("author") && navigate(`${pipeline}/edit`),
      l: () => pipeline && navigate(`${pipeline}/logs`),
      "?": help,
    };
    const onKey = (event: KeyboardEvent) => {
      const on = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (on.closest("input, textarea, select, [contenteditable], .editor")) return;
      const command = pressed(state.current, event.key, event.timeStamp);
      if (command === null) return;
      event.preventDefault();
      void go[command]?.();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [navigate, pathname, may, help]);
}
