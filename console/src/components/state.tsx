// States: a colour, a shape and a word each. A colour never stands alone.
import type { Job, RecentRun, Run } from "../api/generated";
import { formatSpan } from "../format/duration";
import { wordsOf } from "../format/text";

/** Tone is a colour of state, the same as on the dashboards. */
export type Tone = "ok" | "bad" | "hold" | "retry" | "lost" | "wait" | "idle";

/** StateWord is a state in words. */
export interface StateWord {
  tone: Tone;
  text: string;
}

const shapes: Record<Tone, string> = {
  ok: "dot", bad: "triangle", hold: "square", retry: "square", lost: "triangle", wait: "dot", idle: "ring",
};

/** State is a mark with its word. */
export const State = ({ tone, text }: StateWord) => (
  <span class={`state ${tone} ${shapes[tone]}`}>{text}</span>
);

/** holdWord says which gate holds a run. */
const holdWords: Record<string, string> = {
  REASON_OVERLAP: "waits for another run", REASON_LOCK: "waits for a lock", REASON_TARGET: "held by its target",
  REASON_PACE: "paced", REASON_QUEUE: "held by queue limits", REASON_PAYLOAD: "payload cannot be opened",
};

/** stateOfJob is the state of a job in words. */
export function stateOfJob(job: Job): StateWord {
  const s = job.status ?? {};
  switch (s.state) {
    case "STATE_RUNNING":
      return { tone: "ok", text: (s.currentAttempt ?? 0) > 1 ? `running, attempt ${s.currentAttempt}` : "running" };
    case "STATE_PAUSED":
      return { tone: "idle", text: "paused" };
    case "STATE_DEAD":
      return { tone: "bad", text: "dead" };
    case "STATE_DONE":
      return { tone: "idle", text: "done" };
  }
  if (s.hold?.reason) return { tone: "hold", text: holdWords[s.hold.reason] ?? "held" };
  if (s.delaySource === "DELAY_SOURCE_RETRY") return { tone: "retry", text: "retrying" };
  if (s.delaySource === "DELAY_SOURCE_BACKOFF") return { tone: "hold", text: "backing off" };
  return { tone: "wait", text: "scheduled" };
}

const outcomeTones: Record<string, Tone> = {
  OUTCOME_SUCCEEDED: "ok", OUTCOME_FAILED: "retry", OUTCOME_TIMED_OUT: "retry", OUTCOME_LOST: "lost",
  OUTCOME_DEAD: "bad", OUTCOME_QUARANTINED: "bad", OUTCOME_CANCELLED: "idle",
};

/** stateOfOutcome is the outcome of a run in words. */
export function stateOfOutcome(outcome: string | undefined): StateWord {
  return { tone: outcomeTones[outcome ?? ""] ?? "idle", text: wordsOf(outcome, "OUTCOME_") || "–" };
}

/** stateOfRun is the state of a run in words. */
export function stateOfRun(run: Run): StateWord {
  switch (run.state) {
    case "STATE_RUNNING":
      return { tone: "ok", text: "running" };
    case "STATE_WAITING":
      return run.hold?.reason
        ? { tone: "hold", text: holdWords[run.hold.reason] ?? "held" }
        : { tone: "wait", text: "waiting" };
  }
  return stateOfOutcome(run.outcome);
}

/** recentRuns is how many of the latest runs of a job lists show. */
export const recentRuns = 10;

/** RunStrip are the latest runs as bars, the oldest first. A bar that did not succeed is lower, so that its colour does not stand alone. */
export function RunStrip({ runs }: { runs: RecentRun[] | undefined }) {
  if (!runs?.length) return null;
  const words = runs.map((r) => stateOfOutcome(r.outcome)).reverse();
  return (
    <span class="strip" role="img" aria-label={`Last ${runs.length === 1 ? "run" : "runs"}: ${words.map((w) => w.text).join(", ")}`}>
      {words.map((w, i) => <i key={i} class={w.tone} />)}
    </span>
  );
}

const mostSteps = 8;

/** BackoffSteps shows how far a job has backed off: failures in a row, and the interval that they give. */
export function BackoffSteps({ job }: { job: Job }) {
  const failures = Number(job.status?.consecutiveFailures ?? 0);
  if (failures === 0 || job.status?.state === "STATE_DEAD") return <span class="soft">–</span>;
  const all = Math.min(job.backoffPolicy?.maxExponent || 5, mostSteps);
  const on = Math.min(failures, all);
  const interval = job.status?.effectiveInterval ? formatSpan(job.status.effectiveInterval) : "";
  return (
    <span class="nowrap">
      <span class="steps" role="img" aria-label={`step ${on} of ${all}`}>
        {Array.from({ length: all }, (_, i) => <i key={i} class={i < on ? "on" : undefined} />)}
      </span> {interval}
    </span>
  );
}
