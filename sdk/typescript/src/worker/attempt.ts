import type { Lease } from "../gen/fermata/v1/worker_service_pb.js";
import { toMilliseconds } from "../client/messages.js";
import { TaskContext } from "./context.js";
import type { AttemptResult } from "./outcome.js";
import type { Session } from "./session.js";
import { Task } from "./task.js";

/** Phase is the state of an attempt. It enters at the first one that applies. */
export enum Phase {
  /** Queued attempts wait for a slot. */
  Queued,
  /** Early attempts have a slot and are not due yet. */
  Early,
  /** Ready attempts have a slot and start next. */
  Ready,
  Running,
  /** Ended attempts have a result that is not acknowledged yet. */
  Ended,
  Gone,
}

/** Stopping counts the handlers that the end of trust has cancelled, until their stop margin is over. */
export interface Stopping {
  remaining: number;
  done: Promise<void>;
  end: () => void;
}

/** Attempt is one lease with its state. Times are by the monotonic clock, in milliseconds. */
export class Attempt {
  readonly id: string;
  readonly context = new TaskContext();
  readonly task: Task;
  readonly startAfter: number;
  phase = Phase.Queued;
  receivedAt = 0;
  /** startAt is when it is due. */
  startAt = 0;
  startedAt = 0;
  result: AttemptResult | undefined;
  /** hasVoidResult: the handler failed because the lease was lost. */
  hasVoidResult = false;
  /** wasNamedInHello: a Hello named the lease as live, so that the node counts the attempt as started. */
  wasNamedInHello = false;
  /** knownEpoch is the epoch of the latest session whose node knows that this worker has the lease, because it granted
   * it or read it in a Hello. */
  knownEpoch = 0;
  /** isLost: the lease has ended. lostEpoch is the epoch of the session whose node reported that, or 0 if this
   * process's clock decided, at lostAt. */
  isLost = false;
  lostEpoch = 0;
  lostAt = 0;
  /** stopping is set if the handler ran when the lease was lost. */
  stopping: Stopping | undefined;
  /** sentOn is the session on which the result was last sent, at sentAt. */
  sentOn: Session | undefined;
  sentAt = 0;

  constructor(readonly lease: Lease) {
    this.id = lease.leaseId;
    this.startAfter = lease.startAfter ? toMilliseconds(lease.startAfter) : 0;
    this.task = new Task(lease, this.context);
  }

  /** reliesOnLease reports whether the handler relies on the lease now, or will when it starts. */
  get reliesOnLease(): boolean {
    return this.phase !== Phase.Ended && !this.isLost;
  }

  /** resultMayCount reports whether it has a result that may still be accepted. The lease may still be valid when this
   * process's clock says that it has ended, because that estimate is early. */
  get resultMayCount(): boolean {
    return this.phase === Phase.Ended && !this.hasVoidResult;
  }

  /** holdsOnlySlot reports whether the handler still runs although its lease has certainly ended, so that it only holds
   * a slot. A node that reads the lease in a Hello answers that it is lost, and counts the slot as free when the
   * handler has ended. Otherwise it would send leases for slots that are taken. */
  holdsOnlySlot(now: number, leaseTtl: number): boolean {
    return this.phase === Phase.Running && (this.lostEpoch !== 0 || now - this.lostAt >= leaseTtl);
  }
}
