// Actions on a queue.
import { Failure } from "../api/errors";
import type { QueueSettings } from "../api/generated";
import { defineAction, type Action, type Values } from "./action";

/** QueueSubject is a queue with its settings. */
export interface QueueSubject {
  namespace: string;
  queue: string;
  settings: QueueSettings;
}

export const scope = (q: QueueSubject) => ({ namespace: q.namespace, queue: q.queue });
export const names = (q: QueueSubject) => ({ namespace: q.namespace, queue: q.queue });

/** unchanged are the settings as they were read: if somebody has changed them meanwhile, the call is refused. */
export const unchanged = ({ settings: s }: QueueSubject) => ({
  "expected.maxConcurrency": s.maxConcurrency, "expected.rate": s.rate, "expected.burst": s.burst,
  "expected.recoveryRate": s.recoveryRate, "expected.paused": s.paused ?? false,
  "expected.pauseUntilTime": s.pauseUntilTime,
});

function numberOf(v: Values, name: string, label: string): number | undefined {
  if (!v[name]) return undefined;
  const n = Number(v[name]);
  if (!Number.isFinite(n) || n < 0) throw new Failure(`${label}: want a number`, 400);
  return n;
}

const limits = (s: QueueSettings, v: Values): QueueSettings => ({
  maxConcurrency: numberOf(v, "maxConcurrency", "Live runs at once"), rate: numberOf(v, "rate", "Starts a second"),
  burst: numberOf(v, "burst", "Burst"), recoveryRate: numberOf(v, "recoveryRate", "Recovery rate"), paused: s.paused,
});

const textOf = (n: number | undefined) => (n ? String(n) : "");

export const limitQueue: Action<QueueSubject> = defineAction({
  id: "limit-queue", label: "Set limits…", method: "UpdateQueueSettings",
  title: (q) => `Limits of queue ${q.queue}`,
  effect: () => "The limits hold over all nodes, within about a second. An empty field is no limit.",
  fields: ({ settings: s }) => [
    { name: "maxConcurrency", label: "Live runs at once", kind: "text", initial: textOf(s.maxConcurrency) },
    { name: "rate", label: "Starts a second", kind: "text", initial: textOf(s.rate) },
    { name: "burst", label: "Starts at once after an idle time", kind: "text", initial: textOf(s.burst), help: "Empty: as many as in one second. It needs a rate." },
    { name: "recoveryRate", label: "Recovery rate", kind: "text", initial: textOf(s.recoveryRate),
      help: "Starts a second of all runs that catch up, are resumed, backfilled or redriven. Empty: 50." },
  ],
  scope, params: (q) => ({ ...names(q), ...unchanged(q) }),
  body: (q, v, requestId) => (requestId ? limits(q.settings, v) : safeLimits(q.settings, v)),
  cli: (q, v) => ["queues", "set", q.queue, "--namespace", q.namespace, "--max-concurrency", v["maxConcurrency"] || "0", "--rate", v["rate"] || "0",
    "--burst", v["burst"] || "0", ...(v["recoveryRate"] ? ["--recovery-rate", v["recoveryRate"]] : [])],
  done: (q) => `The limits of queue ${q.queue} are set.`,
});

/** safeLimits is for the text of a command, which must not fail while somebody types. */
function safeLimits(s: QueueSettings, v: Values): QueueSettings {
  try {
    return limits(s, v);
  } catch {
    return {};
  }
}

/** switchTo are the settings with the queue paused or not. The end of a pause is not set by them. */
export const switchTo = (q: QueueSubject, paused: boolean): QueueSettings =>
  ({ ...q.settings, name: undefined, pauseUntilTime: undefined, paused });

export const resumeQueue: Action<QueueSubject> = defineAction({
  id: "resume-queue", label: "Resume…", method: "UpdateQueueSettings",
  title: (q) => `Resume queue ${q.queue}`,
  effect: () => "The due runs start in order, as fast as workers and limits allow. If that is too fast, set a limit first.",
  unavailable: (q) => (q.settings.paused ? "" : "The queue is not paused."),
  scope, params: (q) => ({ ...names(q), ...unchanged(q) }),
  body: (q) => switchTo(q, false),
  cli: (q) => ["queues", "resume", q.queue, "--namespace", q.namespace],
  done: (q) => `Queue ${q.queue} goes on.`,
});
