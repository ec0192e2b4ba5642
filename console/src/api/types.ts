/** Names for the shapes the pages speak of, and the report of a run, which the API passes on as it is. */
import type { Schemas } from "./client";

export type Pipeline = Schemas["PipelineAnswer"];
export type Batch = Schemas["BatchAnswer"];
export type Run = Schemas["RunAnswer"];
export type Event = Schemas["EventAnswer"];
export type Alert = Schemas["AlertAnswer"];
export type Silence = Schemas["SilenceAnswer"];
export type Target = Schemas["TargetAnswer"];
export type Token = Schemas["TokenAnswer"];
export type Audit = Schemas["AuditAnswer"];
export type LogLine = Schemas["LogAnswer"];
export type GraphNode = Schemas["NodeAnswer"];
export type Point = Schemas["PointAnswer"];
export type Plan = Schemas["PlanAnswer"];
export type ProblemItem = Schemas["ProblemItem"];
export type Role = Schemas["Role"];

type Counts = Record<string, number>;

/** How a run is now, as it reports it. */
export interface RunStatus {
  run: string;
  phase: string;
  at: string;
  started_at: string | null;
  batches: number;
  rows_in: Counts;
  rows_out: Counts;
  rows_late: Counts;
  rows_dead: Counts;
  rows_filtered: Counts;
  rows_per_second: number;
  watermarks: Counts;
  watermark: number | null;
  backlog: Record<string, { amount: number; unit: string }>;
  caught_up_in: Record<string, number | null>;
  last_batch: { batch: number; at: string; duration_ms: number } | null;
  state_rows: number;
  state_bytes: number;
  checkpoint_bytes: number | null;
  checkpoint_at: string | null;
  disk_free: number | null;
  sink_retries: Counts;
}

/** A pipeline as the stream tells of it. */
export type LivePipeline = Pipeline & { status: RunStatus | null };
