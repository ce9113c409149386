import { Result_Outcome } from "../gen/fermata/v1/worker_service_pb.js";
import type { Attempt } from "./attempt.js";

// While results are frequent, they are gathered for gatherTime before they are sent. At a thousand results a second a
// message, a settlement and an acknowledgement for each of them cost several times what they cost for three together.
// A result is gathered only where nobody waits for it:
//
//   - It is a success. The next attempt after a failure may be due within milliseconds.
//   - At least half of the slots have neither an attempt nor a result that is not sent. The node counts the slot of an
//     unsent result as taken, and leases in advance only to workers that have half of their slots free.
//   - The worker and its node do not drain.
//
// The price: results are stored up to gatherTime later, and the attempts of a worker that dies are repeated if they
// ended within that time.

/** gatherTime is how long results are gathered, in milliseconds. */
export const gatherTime = 3;
/** gatherRate is the number of results a second on a stream from which on they are gathered. */
const gatherRate = 250;
/** maxGathered is the number of results at which they are sent at once. */
const maxGathered = 128;

/** GatherState is what decides whether starts and results that are not sent yet may wait. */
export interface GatherState {
  /** rate is the number of results a second. */
  rate: number;
  /** ended is the attempt that has just ended; undefined: none has. */
  ended: Attempt | undefined;
  slots: number;
  slotsTaken: number;
  /** unsent is the number of results that are not sent yet. */
  unsent: number;
  /** isDraining: the worker or its node drains. */
  isDraining: boolean;
}

/** mayGather reports whether starts and results that are not sent yet may wait for gatherTime. */
export function mayGather(s: GatherState): boolean {
  return (
    s.rate >= gatherRate &&
    (s.ended === undefined || s.ended.result?.outcome === Result_Outcome.SUCCEEDED) &&
    s.unsent < maxGathered &&
    2 * (s.slotsTaken + s.unsent) <= s.slots &&
    !s.isDraining
  );
}

/** rateWindow is the time over which a rate is measured, in milliseconds. */
const rateWindow = 100;

/** RateMeter measures how many events a second there are. */
export class RateMeter {
  /** perSecond is the rate of the last window that is complete. */
  perSecond = 0;
  #events = 0;
  #start: number | undefined;

  /** count counts an event. A window ends with the first event after its time, so that a pause lowers the rate. */
  count(now: number): void {
    this.#start ??= now;
    this.#events++;
    const span = now - this.#start;
    if (span < rateWindow) return;
    this.perSecond = (this.#events * 1000) / span;
    this.#start = now;
    this.#events = 0;
  }
}
