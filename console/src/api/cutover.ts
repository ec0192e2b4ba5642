/** A new version that follows a pipeline, and takes over from it. */
import { api, type Schemas } from "./client";

export type Cutover = Schemas["CutoverAnswer"];

const OF = "/api/v1/pipelines/{name}/cutover";

export const cutover = {
  get: (name: string) => api.get(OF, { path: { name } }),
  start: (name: string, file: { path: string; text: string }, lose: string[]) => api.post(OF, { path: { name }, body: { file, lose } }),
  compare: (name: string) => api.post(`${OF}/compare`, { path: { name } }),
  finish: (name: string) => api.post(`${OF}/finish`, { path: { name } }),
  abort: (name: string) => api.delete(OF, { path: { name } }),
};
