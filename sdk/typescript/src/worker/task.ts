import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { Lease } from "../gen/fermata/v1/worker_service_pb.js";
import { toMilliseconds } from "../client/messages.js";
import { Permanent } from "./errors.js";
import type { TaskContext } from "./context.js";
import { type Output, outputBytes } from "./output.js";

/** Task is one attempt of a run, as a handler sees it. */
export class Task {
  readonly #lease: Lease;
  readonly #context: TaskContext;
  #output: Uint8Array | undefined;

  /** Handlers do not create tasks. For tests: "@fermata-io/fermata/testing". */
  constructor(lease: Lease, context: TaskContext) {
    this.#lease = lease;
    this.#context = context;
  }

  /** run is the full name of the run, namespaces/{n}/jobs/{j}/runs/{r}. It is the same for all attempts of a run, so it
   * can serve as an idempotency key. */
  get run(): string {
    return this.#lease.run;
  }
  get namespace(): string {
    return this.#namePart(1);
  }
  get job(): string {
    return this.#namePart(3);
  }
  get queue(): string {
    return this.#lease.queue;
  }
  get handler(): string {
    return this.#lease.handler;
  }
  get labels(): Record<string, string> {
    return this.#lease.labels;
  }
  /** bytes is the payload. */
  get bytes(): Uint8Array {
    return this.#lease.payload;
  }
  /** attempt is the number of this attempt, from 1. */
  get attempt(): number {
    return this.#lease.attempt;
  }
  /** maxAttempts is the greatest number of attempts of the run; 0: no limit. */
  get maxAttempts(): number {
    return this.#lease.maxAttempts;
  }
  /** isLastAttempt is true if a failure of this attempt ends the run. */
  get isLastAttempt(): boolean {
    return this.maxAttempts > 0 && this.attempt >= this.maxAttempts;
  }
  /** token is the fencing token. It grows with every lease of the job: a store can refuse smaller ones. */
  get token(): bigint {
    return this.#lease.token;
  }
  /** nominalTime is the scheduled time by the rule of the schedule. */
  get nominalTime(): Date | undefined {
    return this.#lease.nominalTime && timestampDate(this.#lease.nominalTime);
  }
  /** dueTime is the scheduled time after jitter and backoff. */
  get dueTime(): Date | undefined {
    return this.#lease.dueTime && timestampDate(this.#lease.dueTime);
  }
  /** timeoutMs is how long the handler may run, in milliseconds; 0: no timeout. */
  get timeoutMs(): number {
    return this.#lease.timeout ? toMilliseconds(this.#lease.timeout) : 0;
  }
  /** correlationId is unique to the run. Workers and nodes log it. */
  get correlationId(): string {
    return this.#lease.correlationId;
  }
  /** traceparent and tracestate are the W3C trace context of the run; empty: it is not traced. */
  get traceparent(): string {
    return this.#lease.traceContext?.traceparent ?? "";
  }
  get tracestate(): string {
    return this.#lease.traceContext?.tracestate ?? "";
  }
  /** signal is aborted when the attempt has to end. Its reason is an AttemptEnded. */
  get signal(): AbortSignal {
    return this.#context.signal;
  }

  /** json returns the payload, decoded from JSON. A payload that is not JSON ends the run: another attempt would fail
   * as well. The error does not contain the payload. */
  json<T = unknown>(): T {
    if (this.bytes.length === 0) throw new Permanent("payload: empty, want JSON");
    try {
      return JSON.parse(this.text()) as T;
    } catch (error) {
      if (error instanceof Permanent) throw error;
      throw new Permanent("payload: not JSON");
    }
  }

  /** text returns the payload, decoded from UTF-8. */
  text(): string {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.bytes);
    } catch {
      throw new Permanent("payload: not UTF-8");
    }
  }

  /** setOutput sets the output to keep with the run, whether it succeeds or fails. What the handler returns takes its
   * place. */
  setOutput(output: Output): void {
    this.#output = outputBytes(output);
  }

  /** output is what setOutput has set. */
  get output(): Uint8Array | undefined {
    return this.#output;
  }

  #namePart(index: number): string {
    const parts = this.run.split("/");
    return parts.length === 6 ? parts[index]! : "";
  }
}

/** Handler runs one attempt. What it returns is kept as the output of the run: bytes, a text, or a value that is stored
 * as JSON. An error fails the attempt. */
export type Handler = (task: Task) => unknown;

/** Middleware runs around every handler. It returns what next returns, or something else. */
export type Middleware = (task: Task, next: () => Promise<unknown>) => unknown;
