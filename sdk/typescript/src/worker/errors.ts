import { type DurationInput, toMilliseconds } from "../client/messages.js";

/** EndCause is why an attempt has to end before its handler has returned. */
export type EndCause = "timeout" | "cancelled" | "lease-lost" | "worker-stops";

const endTexts: Record<EndCause, string> = {
  timeout: "the attempt's timeout has passed",
  cancelled: "the run was cancelled",
  "lease-lost": "the lease is lost",
  "worker-stops": "the worker stops",
};

/** AttemptEnded is the reason of task.signal. After "lease-lost" write nothing more: another worker may run the next
 * attempt already. */
export class AttemptEnded extends Error {
  override readonly name = "AttemptEnded";

  constructor(readonly kind: EndCause) {
    super(endTexts[kind]);
  }
}

/** DrainTimeout is the error of a worker that stopped before all of its handlers had returned. The attempts that were
 * cut off are leased again. */
export class DrainTimeout extends Error {
  override readonly name = "DrainTimeout";

  constructor(readonly attempts: number) {
    const were = attempts === 1 ? "attempt was" : "attempts were";
    super(`${attempts} ${were} cut off when the worker stopped, and will be leased again`);
  }
}

/** Permanent is an error that a retry will not fix: the run ends without further attempts. */
export class Permanent extends Error {
  override readonly name = "Permanent";

  constructor(error: unknown) {
    super(messageOf(error), { cause: error });
  }
}

/** RetryAfter is an error whose next attempt, or next run, should start no earlier than after a delay. The delay
 * replaces the computed one, within the bounds of the job's policy. */
export class RetryAfter extends Error {
  override readonly name = "RetryAfter";
  readonly delayMs: number;

  constructor(error: unknown, delay: DurationInput) {
    super(messageOf(error), { cause: error });
    this.delayMs = Math.max(0, toMilliseconds(delay));
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** causes returns an error and those that it wraps. */
function* causes(error: unknown): Generator<Error> {
  for (let depth = 0; error instanceof Error && depth < 32; error = error.cause, depth++) yield error;
}

/** isPermanent reports whether an error, or one that it wraps, is Permanent. */
export function isPermanent(error: unknown): boolean {
  return [...causes(error)].some((e) => e instanceof Permanent);
}

/** requestedDelay returns the delay of a RetryAfter among an error and those that it wraps. */
export function requestedDelay(error: unknown): number | undefined {
  return [...causes(error)].find((e): e is RetryAfter => e instanceof RetryAfter)?.delayMs;
}
