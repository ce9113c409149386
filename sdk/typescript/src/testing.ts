import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { LeaseSchema } from "./gen/fermata/v1/worker_service_pb.js";
import { json, text } from "./client/schedules.js";
import { type DurationInput, durationOf, toMilliseconds } from "./client/messages.js";
import { type OptionNames, requireKnownOptions } from "./options.js";
import { TaskContext } from "./worker/context.js";
import type { EndCause } from "./worker/errors.js";
import { Task } from "./worker/task.js";

/** TaskFields are the fields of a task for a test. All have defaults. */
export interface TaskFields {
  /** json, text or bytes is the payload. */
  json?: unknown;
  text?: string;
  bytes?: Uint8Array;
  run?: string;
  queue?: string;
  handler?: string;
  labels?: Record<string, string>;
  attempt?: number;
  maxAttempts?: number;
  token?: bigint;
  nominalTime?: Date;
  dueTime?: Date;
  timeout?: DurationInput;
  correlationId?: string;
  traceparent?: string;
  tracestate?: string;
}

/** TestTask is a task whose end a test decides. */
export class TestTask extends Task {
  readonly #context: TaskContext;

  constructor(fields: TaskFields = {}) {
    const context = new TaskContext();
    super(leaseOf(fields), context);
    this.#context = context;
    context.startTimeout(performance.now(), this.timeoutMs);
  }

  /** end aborts the signal of the task, as a worker does. */
  end(cause: EndCause): void {
    this.#context.end(cause);
  }
}

/** task returns a task from nothing, to call a handler with. */
export function task(fields: TaskFields = {}): TestTask {
  return new TestTask(fields);
}

const fieldNames: OptionNames<TaskFields> = {
  json: true,
  text: true,
  bytes: true,
  run: true,
  queue: true,
  handler: true,
  labels: true,
  attempt: true,
  maxAttempts: true,
  token: true,
  nominalTime: true,
  dueTime: true,
  timeout: true,
  correlationId: true,
  traceparent: true,
  tracestate: true,
};

function leaseOf(f: TaskFields) {
  requireKnownOptions("task", f, fieldNames);
  const payload = f.bytes ?? (f.text !== undefined ? text(f.text) : "json" in f ? json(f.json) : new Uint8Array());
  return create(LeaseSchema, {
    leaseId: "test",
    run: f.run ?? "namespaces/default/jobs/test/runs/1",
    queue: f.queue ?? "default",
    handler: f.handler ?? "test",
    payload: payload as Uint8Array<ArrayBuffer>,
    labels: f.labels ?? {},
    attempt: f.attempt ?? 1,
    maxAttempts: f.maxAttempts ?? 3,
    token: f.token ?? 1n,
    nominalTime: timestampFromDate(f.nominalTime ?? new Date()),
    dueTime: timestampFromDate(f.dueTime ?? new Date()),
    timeout: f.timeout === undefined ? undefined : durationOf(toMilliseconds(f.timeout)),
    correlationId: f.correlationId ?? "test",
    traceContext: f.traceparent ? { traceparent: f.traceparent, tracestate: f.tracestate ?? "" } : undefined,
  });
}
