import { randomUUID } from "node:crypto";
import { type Client, createClient } from "@connectrpc/connect";
import { AccessService } from "../gen/fermata/v1/access_service_pb.js";
import { EventService } from "../gen/fermata/v1/event_service_pb.js";
import { JobService } from "../gen/fermata/v1/job_service_pb.js";
import { type OptionNames, requireKnownOptions } from "../options.js";
import { type DurationInput, maxTimerMs, toMilliseconds } from "./messages.js";
import type { Pool } from "./pool.js";
import { callWithRetry } from "./retry.js";

/** CallOptions are what every call may have. */
export interface CallOptions {
  signal?: AbortSignal | undefined;
  /** timeout bounds the call with its retries. Default 30 s. */
  timeout?: DurationInput | undefined;
  /** traceparent and tracestate are the W3C trace context of the caller, which the trace of the run continues. */
  traceparent?: string | undefined;
  tracestate?: string | undefined;
}

/** RequestOptions are those of calls that change something once. */
export interface RequestOptions extends CallOptions {
  /** requestId makes the call idempotent: a call with the same id has no second effect, even after a restart of the
   * program. Default: a random id for each call. */
  requestId?: string | undefined;
}

/** Attempt is what one attempt of a call passes to a generated method. */
export interface Attempt {
  signal?: AbortSignal | undefined;
  timeoutMs: number;
  headers: Record<string, string>;
}

const callOptionNames: OptionNames<CallOptions> = { signal: true, timeout: true, traceparent: true, tracestate: true };

/** OwnNames are the names of the options that a method has beside those of every call. */
type OwnNames<O, Own extends keyof O = Exclude<keyof O, keyof CallOptions>> = [Own] extends [never]
  ? []
  : [Record<Own, true>];

const defaultTimeout = 30_000;

/** Calls makes calls with retries. */
export class Calls {
  readonly jobs: Client<typeof JobService>;
  readonly events: Client<typeof EventService>;
  readonly access: Client<typeof AccessService>;

  constructor(
    readonly pool: Pool,
    readonly namespace: string,
    readonly attempts: number,
  ) {
    this.jobs = createClient(JobService, pool);
    this.events = createClient(EventService, pool);
    this.access = createClient(AccessService, pool);
  }

  /** call calls a method until it succeeds, or fails permanently. It throws for an option that neither every call nor
   * this method has. */
  call<T, O extends CallOptions>(
    options: O,
    method: (attempt: Attempt, number: number) => Promise<T>,
    ...own: OwnNames<O>
  ): Promise<T> {
    requireKnownOptions("options", options, { ...callOptionNames, ...own[0] });
    const { signal } = options;
    const deadline = performance.now() + toMilliseconds(options.timeout ?? defaultTimeout);
    const headers = traceHeaders(options);
    return callWithRetry({ attempts: this.attempts, deadline, signal }, (number) =>
      method({ signal, headers, timeoutMs: timeLeft(deadline) }, number),
    );
  }

  get parent(): string {
    return `namespaces/${this.namespace}`;
  }

  /** parentOf is the parent of a list: the client's namespace, or all that the caller may see. */
  parentOf(allNamespaces: boolean | undefined): string {
    return allNamespaces ? "namespaces/-" : this.parent;
  }

  jobName(job: string): string {
    return this.#fullName("jobs", job);
  }

  queueName(queue: string): string {
    return this.#fullName("queues", queue);
  }

  #fullName(kind: string, id: string): string {
    return id.startsWith("namespaces/") ? id : `${this.parent}/${kind}/${id}`;
  }
}

/** timeLeft returns how long a timer has to run, in milliseconds. */
function timeLeft(deadline: number): number {
  return Math.min(Math.max(1, Math.ceil(deadline - performance.now())), maxTimerMs);
}

/** traceHeaders are the headers of a call's trace context. */
export function traceHeaders(options: CallOptions): Record<string, string> {
  const headers: Record<string, string> = {};
  if (options.traceparent) headers["traceparent"] = options.traceparent;
  if (options.traceparent && options.tracestate) headers["tracestate"] = options.tracestate;
  return headers;
}

/** newRequestId returns a random request id. */
export function newRequestId(): string {
  return randomUUID();
}
