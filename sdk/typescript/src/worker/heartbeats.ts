/** Heartbeats is the state of a session's heartbeats. Times are by the monotonic clock, in milliseconds. */
export class Heartbeats {
  seq = 0;
  /** sent has the latest acknowledged one, and those after it. */
  sent: { seq: number; at: number }[] = [];
  acked = 0;
  /** confirmedAt is when the heartbeat was sent whose acknowledgement confirmed all leases of this worker; 0: none. */
  confirmedAt = 0;
  /** hasUnconfirmedLeases: the session's Hello named leases that are not confirmed yet. They are trusted no longer than
   * the previous session allowed. */
  hasUnconfirmedLeases = false;
  nextAt = 0;
  timerAt = 0;
  hasReportedSilence = false;

  /** queue counts a heartbeat that is sent now, and returns its number. */
  queue(now: number): number {
    this.seq++;
    this.sent.push({ seq: this.seq, at: now });
    return this.seq;
  }

  /** overdueAt returns when the next acknowledgement is overdue; Infinity: none is expected. */
  overdueAt(ackTimeout: number): number {
    if (this.hasReportedSilence) return Infinity;
    const first = this.sent.find((h) => h.seq > this.acked);
    return first ? first.at + ackTimeout : Infinity;
  }

  /** acknowledge records an acknowledgement, and returns when the heartbeat was sent; undefined: it is not of this
   * session. */
  acknowledge(seq: number, confirmed: boolean): number | undefined {
    while (this.sent.length > 0 && this.sent[0]!.seq < seq) this.sent.shift();
    const sent = this.sent[0];
    if (!sent || sent.seq !== seq) return undefined;
    this.acked = seq;
    if (confirmed) this.hasUnconfirmedLeases = false;
    return sent.at;
  }
}
