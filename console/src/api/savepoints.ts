/** Savepoints and work on the state of a pipeline. */
import { api, type Schemas } from "./client";

export type Operation = Schemas["OperationAnswer"];
export type Savepoint = Schemas["SavepointAnswer"];
export type Pair = Schemas["PairAnswer"];
export type Difference = Schemas["DiffAnswer"];

const OF = "/api/v1/pipelines/{name}";

export const savepoints = {
  list: (name: string, after?: string) => api.get(`${OF}/savepoints`, { path: { name }, query: { limit: 50, ...(after ? { after: Number(after) } : {}) } }),
  operations: (name: string) => api.get(`${OF}/operations`, { path: { name }, query: { limit: 10 } }),
  take: (name: string, body: { name?: string; note?: string }) => api.post(`${OF}/savepoints`, { path: { name }, body: { name: null, note: "", ...body } }),
  verify: (name: string, savepoint: string) => api.post(`${OF}/savepoints/{savepoint}/verify`, { path: { name, savepoint } }),
  restore: (name: string, savepoint: string, keepRows: boolean) => api.post(`${OF}/savepoints/{savepoint}/restore`, { path: { name, savepoint }, body: { keepRows } }),
  forget: (name: string, savepoint: string) => api.delete(`${OF}/savepoints/{savepoint}`, { path: { name, savepoint } }),
  diff: (name: string, savepoint: string, against: string) => api.get(`${OF}/savepoints/{savepoint}/diff`, { path: { name, savepoint }, query: { against } }),
  fork: (name: string, savepoint: string, file: { path: string; text: string }, lose: string[]) =>
    api.post(`${OF}/savepoints/{savepoint}/fork`, { path: { name, savepoint }, body: { file, lose, start: true } }),
  rescale: (name: string, partitions: number) => api.post(`${OF}/rescale`, { path: { name }, body: { partitions } }),
  stop: (name: string) => api.post(`${OF}/stop`, { path: { name }, body: { savepoint: true, note: "" } }),
};
