// Actions on one job.
import type { Job, RunJobRequestBackoff } from "../api/generated";
import { parseJobName } from "../api/names";
import { formatSpan } from "../format/duration";
import { defineAction, type Action } from "./action";

const scopeOf = (job: Job) => ({ namespace: parseJobName(job.name).namespace, queue: job.queue });
const idOf = (job: Job) => parseJobName(job.name).job;
const inNamespace = (job: Job) => ["--namespace", parseJobName(job.name).namespace];
const option = (flag: string, value: string | undefined) => (value ? [flag, value] : []);

const backoffChoices: Record<string, { value: RunJobRequestBackoff; text: string; flag: string; effect: string }> = {
  BACKOFF_RESET: { value: "BACKOFF_RESET", text: "Reset it now", flag: "reset", effect: "Its failures in a row are cleared now." },
  BACKOFF_KEEP: { value: "BACKOFF_KEEP", text: "Keep it", flag: "keep", effect: "Its failures in a row and its planned run stay as they are." },
  BACKOFF_RESET_ON_SUCCESS: {
    value: "BACKOFF_RESET_ON_SUCCESS", text: "Reset it if the run succeeds", flag: "reset-on-success",
    effect: "Its failures in a row are cleared if the run succeeds.",
  },
};

export const runJob: Action<Job> = defineAction({
  id: "run-job", label: "Run now…", method: "RunJob",
  title: (job) => `Run ${idOf(job)} now`,
  effect: (job, v) => {
    const start = job.status?.state === "STATE_RUNNING"
      ? "A run is live: one manual run starts when it ends, and further requests join that one."
      : "A run starts at once.";
    const failures = Number(job.status?.consecutiveFailures ?? 0);
    return failures > 0 ? `${start} ${backoffChoices[v["backoff"] ?? ""]?.effect ?? ""}` : start;
  },
  fields: (job) => [
    ...(Number(job.status?.consecutiveFailures ?? 0) > 0 ? [{
      name: "backoff", label: "Backoff", kind: "choice" as const, initial: "BACKOFF_RESET",
      options: Object.values(backoffChoices), help: `${job.status!.consecutiveFailures} failures in a row, interval ${formatSpan(job.status!.effectiveInterval)}.`,
    }] : []),
    ...(job.schedule?.exclusions ? [{
      name: "ignoreExclusions", label: "Even at a time that the schedule excludes", kind: "check" as const,
    }] : []),
  ],
  scope: scopeOf,
  params: (job) => parseJobName(job.name),
  body: (_, v, requestId) => ({
    backoff: (v["backoff"] || undefined) as RunJobRequestBackoff | undefined,
    ignoreExclusions: v["ignoreExclusions"] === "true" || undefined, requestId: requestId || undefined,
  }),
  cli: (job, v) => ["jobs", "run", idOf(job), ...inNamespace(job), ...option("--backoff", backoffChoices[v["backoff"] ?? ""]?.flag),
    ...(v["ignoreExclusions"] === "true" ? ["--ignore-exclusions"] : [])],
  done: (job, result) => result.coalesced ? `${idOf(job)}: the run joined a manual run that waits already.` : `${idOf(job)}: the run is on its way.`,
});

export const pauseJob: Action<Job> = defineAction({
  id: "pause-job", label: "Pause…", method: "PauseJob",
  title: (job) => `Pause ${idOf(job)}`,
  effect: () => "No run starts by the schedule until the job is resumed. A live run continues; manual runs are possible.",
  fields: () => [{ name: "note", label: "Note", kind: "text", help: "Why, for the people who find it paused.", maxLength: 256 }],
  scope: scopeOf,
  unavailable: (job) => (job.status?.state === "STATE_PAUSED" ? "The job is paused already." : ""),
  params: (job) => parseJobName(job.name),
  body: (_, v) => ({ note: v["note"] || undefined }),
  cli: (job, v) => ["jobs", "pause", idOf(job), ...inNamespace(job), ...option("--note", v["note"])],
  done: (job) => `${idOf(job)} is paused.`,
});

export const resumeJob: Action<Job> = defineAction({
  id: "resume-job", label: "Resume…", method: "ResumeJob",
  title: (job) => `Resume ${idOf(job)}`,
  effect: (_, v) => v["catchUp"] === "true"
    ? "The schedule goes on. The misfire policy decides about the times that passed during the pause."
    : "The schedule goes on. The times that passed during the pause are skipped.",
  fields: () => [{ name: "catchUp", label: "Catch up on the times that passed", kind: "check" }],
  scope: scopeOf,
  unavailable: (job) => (job.status?.pauseTime ? "" : "The job is not paused."),
  params: (job) => parseJobName(job.name),
  body: (_, v) => ({ catchUp: v["catchUp"] === "true" || undefined }),
  cli: (job, v) => ["jobs", "resume", idOf(job), ...inNamespace(job), ...(v["catchUp"] === "true" ? ["--catch-up"] : [])],
  done: (job) => `${idOf(job)} goes on.`,
});
