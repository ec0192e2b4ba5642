import type { LivePipeline, Pipeline } from "../api/types";

/** The list as it came, with what runs last reported, and what was heard while it was on its way. */
export function merged(
  found: readonly Pipeline[], before: ReadonlyMap<string, LivePipeline> | null, heard: ReadonlyMap<string, LivePipeline | null>,
): Map<string, LivePipeline> {
  const result = new Map<string, LivePipeline>();
  for (const each of found) {
    const known = before?.get(each.name);
    result.set(each.name, { ...each, status: known?.run === each.run ? (known.status ?? null) : null });
  }
  for (const [name, news] of heard) {
    if (news) result.set(name, news);
    else result.delete(name);
  }
  return result;
}
