/** Addresses and their pages. Each page is loaded when it is first opened; the server knows the same addresses. */
import { lazy, Suspense } from "react";
import { Route, Routes } from "react-router";
import { OverviewPage } from "./pages/overview/OverviewPage";
import { SessionProvider } from "./session";
import { Layout } from "./ui/Layout";
import { Empty, Loading } from "./ui/states";

const LoginPage = lazy(() => import("./pages/login/LoginPage"));
const PipelinePage = lazy(() => import("./pages/pipeline/PipelinePage"));
const EditPage = lazy(() => import("./pages/edit/EditPage"));
const NewPage = lazy(() => import("./pages/edit/NewPage"));
const AlertsPage = lazy(() => import("./pages/alerts/AlertsPage"));
const EventsPage = lazy(() => import("./pages/events/EventsPage"));
const SavepointsPage = lazy(() => import("./pages/savepoints/SavepointsPage"));
const TargetsPage = lazy(() => import("./pages/targets/TargetsPage"));
const TokensPage = lazy(() => import("./pages/tokens/TokensPage"));
const AuditPage = lazy(() => import("./pages/audit/AuditPage"));

export function Pages() {
  return (
    <Routes>
      <Route path="/login" element={<Suspense fallback={<Loading what="the login" />}><LoginPage /></Suspense>} />
      <Route element={<SessionProvider><Layout /></SessionProvider>}>
        <Route index element={<OverviewPage />} />
        <Route path="/new" element={<NewPage />} />
        <Route path="/pipelines/:name/edit" element={<EditPage />} />
        <Route path="/pipelines/:name/:part?" element={<PipelinePage />} />
        <Route path="/alerts" element={<AlertsPage />} />
        <Route path="/events" element={<EventsPage />} />
        <Route path="/savepoints" element={<SavepointsPage />} />
        <Route path="/targets" element={<TargetsPage />} />
        <Route path="/tokens" element={<TokensPage />} />
        <Route path="/audit" element={<AuditPage />} />
        <Route path="*" element={<Empty title="There is no such page">Go to the list of pipelines by pressing g and p.</Empty>} />
      </Route>
    </Routes>
  );
}
