// Actions on revisions of a job.
import type { Job } from "../api/generated";
import { parseJobName } from "../api/names";
import { defineAction, type Action } from "./action";

/** RestorableRevision is an earlier revision, and the job that it was compared with. */
export interface RestorableRevision {
  /** job as it was when it was compared: its etag refuses a restore over a later edit. */
  job: Job;
  revision: string;
  /** fields that the restore changes. */
  fields: string[];
}

const scopeOf = ({ job }: RestorableRevision) => ({ namespace: parseJobName(job.name).namespace, queue: job.queue });

export const restoreRevision: Action<RestorableRevision> = defineAction({
  id: "restore-revision", label: "Restore…", method: "RestoreJobRevision",
  title: ({ job, revision }) => `Restore revision ${revision} of ${parseJobName(job.name).job}`,
  effect: ({ fields }) => `The definition of that revision becomes a new revision; it changes ${fields.join(", ")}. `
    + "A live run keeps its settings, and a paused job stays paused. If somebody has edited the job since it was compared, nothing changes.",
  scope: scopeOf,
  unavailable: ({ fields }) => (fields.length === 0 ? "The job has this definition already." : ""),
  params: ({ job, revision }) => ({ ...parseJobName(job.name), revision }),
  body: () => ({}),
  etag: ({ job }) => job.etag,
  cli: ({ job, revision }) => {
    const name = parseJobName(job.name);
    return ["jobs", "restore", name.job, "--revision", revision, "--namespace", name.namespace, ...(job.etag ? ["--etag", job.etag] : [])];
  },
  done: ({ job, revision }) => `${parseJobName(job.name).job} has the definition of revision ${revision} again.`,
});
