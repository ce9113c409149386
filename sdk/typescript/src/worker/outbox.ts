import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type ResultSchema, type WorkRequest, WorkRequestSchema } from "../gen/fermata/v1/worker_service_pb.js";
import { durationOf } from "../client/messages.js";
import { type Attempt, Phase } from "./attempt.js";

/** maxLeaseIds bounds the lease ids in one message. */
const maxLeaseIds = 300;
/** maxResultBytes is the size of results at which a message is full. */
const maxResultBytes = 27 << 10;
/** resultOverhead bounds the size of a result without lease id, text and output. */
const resultOverhead = 48;

/** Outbox holds what waits to be sent on a session. All that waits is sent together, so a busy stream sends few large
 * messages. */
export class Outbox {
  /** heartbeat is the number of the latest one to send; 0: none. */
  heartbeat = 0;
  draining = false;
  returned: string[] = [];
  lost: string[] = [];
  started: Attempt[] = [];
  results: Attempt[] = [];

  get isEmpty(): boolean {
    return (
      this.heartbeat === 0 &&
      !this.draining &&
      this.returned.length === 0 &&
      this.lost.length === 0 &&
      this.started.length === 0 &&
      this.results.length === 0
    );
  }

  /** takeMessages empties the outbox. Starts come before results. A start is left out if the result goes out with it.
   * */
  takeMessages(): WorkRequest[] {
    const out: WorkRequest[] = [];
    const add = (message: MessageInitShape<typeof WorkRequestSchema>["message"]) =>
      out.push(create(WorkRequestSchema, { message }));
    if (this.heartbeat > 0) add({ case: "heartbeat", value: { seq: BigInt(this.heartbeat) } });
    if (this.draining) add({ case: "draining", value: {} });
    for (const leaseIds of chunks(this.returned)) add({ case: "returned", value: { leaseIds } });
    for (const leaseIds of chunks(this.lost)) add({ case: "lost", value: { leaseIds } });
    const inResults = new Set(this.results);
    const started = this.started.filter((a) => !inResults.has(a)).map((a) => a.id);
    for (const leaseIds of chunks(started)) add({ case: "started", value: { leaseIds } });
    for (const results of this.#resultBatches()) add({ case: "results", value: { results } });
    this.heartbeat = 0;
    this.draining = false;
    this.returned = [];
    this.lost = [];
    this.started = [];
    this.results = [];
    return out;
  }

  *#resultBatches(): Generator<MessageInitShape<typeof ResultSchema>[]> {
    let batch: MessageInitShape<typeof ResultSchema>[] = [];
    let size = 0;
    for (const attempt of new Set(this.results)) {
      if (attempt.phase !== Phase.Ended || !attempt.result) continue;
      batch.push(resultMessage(attempt));
      size += resultSize(attempt);
      if (size >= maxResultBytes) {
        yield batch;
        batch = [];
        size = 0;
      }
    }
    if (batch.length > 0) yield batch;
  }
}

function resultMessage(attempt: Attempt): MessageInitShape<typeof ResultSchema> {
  const r = attempt.result!;
  const message: MessageInitShape<typeof ResultSchema> = {
    leaseId: attempt.id,
    outcome: r.outcome,
    error: r.error,
    duration: durationOf(r.tookMs),
  };
  if (r.output) message.output = r.output;
  if (r.retryAfterMs > 0) message.retryAfter = durationOf(r.retryAfterMs);
  return message;
}

function resultSize(attempt: Attempt): number {
  const r = attempt.result!;
  return resultOverhead + attempt.id.length + r.error.length + (r.output?.length ?? 0);
}

function* chunks(ids: string[]): Generator<string[]> {
  for (let i = 0; i < ids.length; i += maxLeaseIds) yield ids.slice(i, i + maxLeaseIds);
}
