import { setTimeout as sleep } from "node:timers/promises";
import { FermataError, toFermataError } from "./errors.js";

// Delays between attempts if the cluster requests none, in milliseconds.
const firstRetryDelay = 100;
const maxRetryDelay = 2000;
/** maxRequestedDelay bounds the delay that the cluster requests. */
const maxRequestedDelay = 10_000;

/** delayAfter returns the delay before a retry; undefined: a retry does not help. Aborted calls are retried only if the
 * cluster asks for that: otherwise the caller has to look at a concurrent change first. */
export function delayAfter(error: FermataError, attempt: number): number | undefined {
  const requested = error.retryAfterMs;
  if (error.code === "UNAVAILABLE" && requested === undefined) {
    const wait = Math.min(firstRetryDelay * 2 ** Math.min(attempt - 1, 10), maxRetryDelay);
    return wait / 2 + Math.random() * (wait / 2);
  }
  if (requested !== undefined && ["UNAVAILABLE", "ABORTED", "RESOURCE_EXHAUSTED"].includes(error.code)) {
    const wait = Math.min(requested, maxRequestedDelay);
    return wait + Math.random() * (wait / 4);
  }
  return undefined;
}

/** RetryLimits bound the attempts of a call. */
export interface RetryLimits {
  attempts: number;
  /** deadline is by the monotonic clock. */
  deadline: number;
  signal?: AbortSignal | undefined;
}

/** callWithRetry calls until a call succeeds, or fails permanently, or the limits are reached. It throws the last
 * error. */
export async function callWithRetry<T>(limits: RetryLimits, call: (attempt: number) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await call(attempt);
    } catch (thrown) {
      const error = toFermataError(thrown, limits.signal);
      const delay = delayAfter(error, attempt);
      if (delay === undefined || attempt >= limits.attempts || performance.now() + delay >= limits.deadline)
        throw error;
      await pause(delay, limits.signal);
    }
  }
}

/** pause waits, and throws if the signal is aborted. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  try {
    await sleep(ms, undefined, signal ? { signal } : {});
  } catch {
    throw new FermataError("CANCELLED", "the call was aborted", { cause: signal?.reason });
  }
}
