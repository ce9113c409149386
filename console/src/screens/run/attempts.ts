// The attempts of a run, with the waits between them.
import type { Job, Run, RunAttempt } from "../../api/generated";
import { stateOfOutcome, stateOfRun, type StateWord } from "../../components/state";
import { formatDuration } from "../../format/duration";
import { wordsOf } from "../../format/text";

/** Attempt is an attempt on the axis of its run; the last one may be live. */
export interface Attempt {
  number: number;
  state: StateWord;
  due: number;
  start: number;
  end: number;
  worker: string | undefined;
  isLive: boolean;
  /** wait says why the attempt was not due at the end of the one before; unset for the first one. */
  wait: string | undefined;
}

/** attemptsOf are the attempts that are known: all that have ended, up to the latest eight, and the live one. */
export function attemptsOf(run: Run, job: Job, now: number): Attempt[] {
  const log = run.attemptLog?.length ? run.attemptLog : attemptOfRun(run);
  const attempts = log.map((a, i): Attempt => ({
    number: a.attempt ?? 1, state: stateOfOutcome(a.outcome), due: Date.parse(a.dueTime ?? ""), start: Date.parse(a.startTime ?? a.dueTime ?? ""),
    end: Date.parse(a.finishTime ?? ""), worker: a.worker, isLive: false, wait: i > 0 ? waitBetween(log[i - 1]!, a, job) : undefined,
  }));
  if (run.state === "STATE_RUNNING") {
    const due = Date.parse(run.dueTime ?? "");
    const start = Math.max(due, attempts.at(-1)?.end ?? due);
    attempts.push({
      number: run.attempts ?? 1, state: stateOfRun(run), due, start, end: Math.max(now, start), worker: run.worker, isLive: true,
      wait: nextWait(run, job),
    });
  }
  return attempts;
}

/** attemptOfRun is the only attempt of a run that succeeded at once, or the last one of a run without a log. */
function attemptOfRun(run: Run): RunAttempt[] {
  if (run.state !== "STATE_FINISHED" || !run.startTime) return [];
  return [{ attempt: run.attempts, outcome: run.outcome, dueTime: run.dueTime, startTime: run.startTime, finishTime: run.finishTime, worker: run.worker }];
}

/** nextWait is the wait after the last attempt that has ended, before the one that is live or waits. */
export function nextWait(run: Run, job: Job): string | undefined {
  const last = run.attemptLog?.at(-1);
  return last && waitBetween(last, { dueTime: run.dueTime, delaySource: run.hold?.reason ? "DELAY_SOURCE_HELD" : undefined }, job);
}

/** waitBetween says by which rule an attempt waited after another one, and how long. */
function waitBetween(before: RunAttempt, after: RunAttempt, job: Job): string {
  const wait = formatDuration(Math.max(0, Date.parse(after.dueTime ?? "") - Date.parse(before.finishTime ?? "")));
  if (before.outcome === "OUTCOME_LOST") return "again after the loss of its worker";
  switch (after.delaySource) {
    case "DELAY_SOURCE_HINT":
      return `${wait}, as its worker asked`;
    case "DELAY_SOURCE_HELD":
      return `${wait}, held by a gate`;
    case undefined:
    case "DELAY_SOURCE_RETRY": {
      const all = (job.retryPolicy?.maxAttempts ?? 0) - 1;
      return `backoff ${before.attempt ?? 1}${all > 0 ? ` of ${all}` : ""}: ${wait}`;
    }
  }
  return `${wait}, ${wordsOf(after.delaySource, "DELAY_SOURCE_")}`;
}
