// Actions on one job.
import type { Hint, Job, Run, RunJobRequestBackoff } from "../api/generated";
import { Failure } from "../api/errors";
import { parseJobName, parseRunName } from "../api/names";
import { apiDuration, formatSpan } from "../format/duration";
import { formatTime, zoneFor } from "../format/time";
import { payloadOfText, payloadText } from "../format/payload";
import { serverNow } from "../live/clock";
import { defineAction, type Action, type ActionField, type Values } from "./action";
import { durationOf, instantOf } from "./inputs";

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

const exclusionField = (job: Job): ActionField[] => job.schedule?.exclusions
  ? [{ name: "ignoreExclusions", label: "Even at a time that the schedule excludes", kind: "check" }] : [];
const exclusionFlag = (v: Values) => (v["ignoreExclusions"] === "true" ? ["--ignore-exclusions"] : []);

/** jsonErrorOf says why a text is no JSON; "" if it is. */
function jsonErrorOf(text: string): string {
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    return (error as Error).message;
  }
}

/**
 * payloadOfForm is the payload of a form. JSON is checked and sent as it was typed, so that long numbers keep their
 * digits. It throws a Failure.
 */
function payloadOfForm(v: Values): string {
  const text = v["payload"] ?? "";
  const error = v["format"] === "json" ? jsonErrorOf(text) : "";
  if (error) throw new Failure(`Payload: not valid JSON: ${error}`, 400);
  return payloadOfText(text);
}

const runJobWithPayload: Action<Job> = defineAction({
  id: "run-job-with-payload", label: "Run with this payload", method: "RunJobWithPayload",
  title: (job) => `Run ${idOf(job)} now with another payload`,
  effect: () => "A run with this payload starts when it has its turn; its retries have the payload too. The job keeps its "
    + "own. The outcome does not count for the failures in a row.",
  fields: (job) => {
    const present = payloadText(job.payload ?? "") ?? "";
    return [
      { name: "format", label: "Format", kind: "choice", initial: present && jsonErrorOf(present) ? "text" : "json",
        options: [{ value: "json", text: "JSON" }, { value: "text", text: "Text" }] },
      { name: "payload", label: "Payload", kind: "lines", initial: present,
        help: job.payloadSealed ? "The job's own payload is sealed, and not shown." : undefined },
      ...exclusionField(job),
    ];
  },
  scope: scopeOf,
  params: (job) => parseJobName(job.name),
  body: (_, v, requestId) => ({
    payload: requestId ? payloadOfForm(v) : payloadOfText(v["payload"] ?? ""),
    ignoreExclusions: v["ignoreExclusions"] === "true" || undefined, requestId: requestId || undefined,
  }),
  cli: (job, v) => ["jobs", "run", idOf(job), ...inNamespace(job), "--payload", v["payload"] ?? "", ...exclusionFlag(v)],
  done: (job) => `${idOf(job)}: the run with another payload is on its way.`,
});

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
    ...exclusionField(job),
  ],
  scope: scopeOf,
  params: (job) => parseJobName(job.name),
  body: (_, v, requestId) => ({
    backoff: (v["backoff"] || undefined) as RunJobRequestBackoff | undefined,
    ignoreExclusions: v["ignoreExclusions"] === "true" || undefined, requestId: requestId || undefined,
  }),
  cli: (job, v) => ["jobs", "run", idOf(job), ...inNamespace(job), ...option("--backoff", backoffChoices[v["backoff"] ?? ""]?.flag),
    ...exclusionFlag(v)],
  variant: { label: "With another payload…", action: runJobWithPayload },
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

/** hintOf is the hint of a form; undefined removes the current one. It throws a Failure. */
function hintOf(v: Values): Hint | undefined {
  if (v["kind"] === "clear") return undefined;
  const hint: Hint = { source: "SOURCE_OPERATOR", reason: v["reason"] || undefined };
  const ms = durationOf(v, "wait", "Duration");
  if (v["kind"] === "every") hint.interval = apiDuration(ms);
  else hint.nextRunTime = new Date(serverNow() + ms).toISOString();
  if (v["for"]) hint.expireTime = new Date(serverNow() + durationOf(v, "for", "For")).toISOString();
  return hint;
}

/** hintText is the hint of a form for a command, whose text must not fail while somebody types. */
function hintForText(v: Values): Hint | undefined {
  try {
    return hintOf(v);
  } catch {
    return {};
  }
}

export const hintJob: Action<Job> = defineAction({
  id: "hint-job", label: "Hint…", method: "HintJob",
  title: (job) => `Hint for ${idOf(job)}`,
  effect: (_, v) => {
    switch (v["kind"]) {
      case "clear":
        return "The current hint is removed: the schedule decides, with its backoff.";
      case "every":
        return "Until the hint ends, this interval takes the place of that of the schedule, backed off or not.";
    }
    return "The next run is due then, once, whatever the schedule and the backoff say.";
  },
  fields: (job) => [
    { name: "kind", label: "What", kind: "choice", initial: "in", options: [
      { value: "in", text: "Next run in" }, { value: "every", text: "Run every" },
      ...(job.status?.hint ? [{ value: "clear", text: "Remove the hint" }] : []),
    ] },
    { name: "wait", label: "Duration", kind: "duration", initial: "5m" },
    { name: "for", label: "For", kind: "duration", help: "How long the hint lasts. Empty: an hour." },
    { name: "reason", label: "Reason", kind: "text", maxLength: 256 },
  ],
  scope: scopeOf,
  unavailable: (job) => (job.schedule?.interval || job.schedule?.cron || job.schedule?.calendar ? "" : "A job without a recurring schedule takes no hint."),
  params: (job) => parseJobName(job.name),
  body: (_, v, requestId) => ({ hint: requestId ? hintOf(v) : hintForText(v) }),
  cli: (job, v) => ["jobs", "hint", idOf(job), ...inNamespace(job),
    ...(v["kind"] === "clear" ? ["--clear"] : [v["kind"] === "every" ? "--every" : "--in", v["wait"] ?? ""]),
    ...(v["kind"] === "clear" ? [] : [...option("--for", v["for"]), ...option("--reason", v["reason"])])],
  done: (job) => `${idOf(job)}: the hint is set.`,
});

export const backfillJob: Action<Job> = defineAction({
  id: "backfill-job", label: "Backfill…", method: "BackfillJob",
  title: (job) => `Backfill ${idOf(job)}`,
  effect: (_, v) => "The scheduled times of the range run, paced by the recovery rate of the queue, "
    + (v["parallel"] === "true" ? "several at once, beside other runs of the job." : "one after the other, never beside another run of the job."),
  fields: () => [
    { name: "from", label: "From (local time)", kind: "time", required: true },
    { name: "to", label: "To (local time), which does not count", kind: "time", required: true },
    { name: "parallel", label: "Several at once, up to the overlap limit of the job", kind: "check" },
  ],
  scope: scopeOf,
  unavailable: (job) => (job.schedule?.interval || job.schedule?.cron || job.schedule?.calendar ? "" : "Only a recurring schedule has times to run again."),
  params: (job) => parseJobName(job.name),
  body: (_, v, requestId) => ({
    startTime: requestId ? instantOf(v, "from", "From") : v["from"], endTime: requestId ? instantOf(v, "to", "To") : v["to"],
    overlapPolicy: v["parallel"] === "true" ? "OVERLAP_POLICY_ALLOW_ALL" : undefined, requestId: requestId || undefined,
  }),
  cli: (job, v) => ["jobs", "backfill", idOf(job), ...inNamespace(job), "--from", (v["from"] ?? "").replace("T", " "),
    "--to", (v["to"] ?? "").replace("T", " "), ...(v["parallel"] === "true" ? ["--parallel"] : [])],
  done: (job) => `${idOf(job)}: the backfill has begun.`,
});

export const deleteJob: Action<Job> = defineAction({
  id: "delete-job", label: "Delete…", method: "DeleteJob", isDestructive: true,
  title: (job) => `Delete ${idOf(job)}`,
  effect: (job) => "The job, its history and its dead letters are deleted."
    + (job.status?.state === "STATE_RUNNING" ? " Its live run finishes first." : "") + " This cannot be undone.",
  scope: scopeOf,
  params: (job) => parseJobName(job.name),
  etag: (job) => job.etag,
  cli: (job) => ["jobs", "delete", idOf(job), ...inNamespace(job), ...option("--etag", job.etag)],
  done: (job) => `${idOf(job)} is deleted.`,
});

/** JobRun is a run with its job. */
export interface JobRun {
  job: Job;
  run: Run;
}

export const cancelRun: Action<JobRun> = defineAction({
  id: "cancel-run", label: "Cancel…", method: "CancelRun",
  title: ({ run }) => `Cancel the run of ${formatTime(Date.parse(run.nominalTime ?? ""), serverNow(), zoneFor())}`,
  effect: ({ run }) => run.state === "STATE_RUNNING"
    ? "The handler is asked to stop, and the run ends when it does. The job continues with its schedule."
    : "The run ends at once, without an attempt. The job continues with its schedule.",
  scope: ({ job }) => scopeOf(job),
  unavailable: ({ run }) => (run.state === "STATE_FINISHED" ? "The run has ended." : ""),
  params: ({ run }) => parseRunName(run.name),
  body: () => ({}),
  cli: ({ job, run }) => ["jobs", "cancel", idOf(job), parseRunName(run.name).run, ...inNamespace(job)],
  done: ({ run }) => run.state === "STATE_RUNNING" ? "The run is being cancelled." : "The run is cancelled.",
});
