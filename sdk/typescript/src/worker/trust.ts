import type { HeartbeatAck } from "../gen/fermata/v1/worker_service_pb.js";
import type { Session } from "./session.js";

/** Trust decides how long this worker may trust its leases. One time applies to all of them, and acknowledged
 * heartbeats move it on. A process that was suspended does not notice that, so the time is compared with the clock
 * before each handler starts. Once it has passed, only another session moves it on: messages that waited in the socket
 * prove nothing. */
export class Trust {
  /** stopMargin is how long handlers have to return after trust has ended. */
  stopMargin = 0;
  #until = 0;
  #hasBegun = false;
  #isStopped = false;
  #session: Session | undefined;
  #endTimer: NodeJS.Timeout | undefined;
  #heartbeatTimer: NodeJS.Timeout | undefined;
  readonly #onEnd: () => void;
  readonly #onBlocked: (ms: number) => void;
  #blockedReportAt = -Infinity;

  /** onEnd is called when trust has ended, onBlocked when a heartbeat was late by so many milliseconds. */
  constructor(onEnd: () => void, onBlocked: (ms: number) => void) {
    this.#onEnd = onEnd;
    this.#onBlocked = onBlocked;
  }

  /** holds reports whether a handler may start now. */
  holds(now = performance.now()): boolean {
    return now < this.#until;
  }

  /** begin starts the trust period of a session that was just welcomed. The node counts from when it read the Hello. */
  begin(session: Session): void {
    const until = session.helloAt + session.trustPeriod;
    const beats = session.heartbeats;
    if (!beats.hasUnconfirmedLeases || !session.sendsHeartbeats || until < this.#until) this.#until = until;
    this.#session = session;
    this.#hasBegun = true;
    this.stopMargin = session.stopMargin;
    this.#setEndTimer();
    const now = performance.now();
    beats.nextAt = now;
    beats.timerAt = now;
    this.#paceHeartbeats(session, now);
  }

  /** leave ends the heartbeats of a session. */
  leave(session: Session): void {
    if (this.#session === session) this.#session = undefined;
  }

  /** endIfOver does the work of the timer when that may be late. */
  endIfOver(): void {
    if (this.#hasBegun && !this.holds()) this.#onEnd();
  }

  /** acknowledge extends trust from when the acknowledged heartbeat was sent: the node had the session when it read it.
   * */
  acknowledge(session: Session, ack: HeartbeatAck): void {
    const beats = session.heartbeats;
    const at = beats.acknowledge(Number(ack.seq), ack.confirmed);
    if (at === undefined || session !== this.#session || beats.hasUnconfirmedLeases || !this.holds()) return;
    beats.confirmedAt = at;
    this.#until = at + session.trustPeriod;
  }

  /** extendForDrain extends the trust of a session whose node drains: it keeps leases when the stream ends. */
  extendForDrain(session: Session): void {
    const { confirmedAt } = session.heartbeats;
    if (session === this.#session && confirmedAt > 0) this.#extendTo(confirmedAt + session.trustPeriod);
  }

  /** endSession sets the trust of a session that has ended and whose node takes no heartbeats: its leases are trusted
   * for a while after the last contact. */
  endSession(session: Session): void {
    this.leave(session);
    if (!session.sendsHeartbeats) this.#extendTo(session.lastContact + session.trustPeriod);
  }

  /** stop ends the timers. */
  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#endTimer);
    clearTimeout(this.#heartbeatTimer);
  }

  #extendTo(until: number): void {
    if (!this.holds()) return;
    this.#until = until;
    this.#setEndTimer();
  }

  #setEndTimer(): void {
    clearTimeout(this.#endTimer);
    if (this.#isStopped) return;
    this.#endTimer = setTimeout(() => this.#check(), Math.max(0, Math.ceil(this.#until - performance.now())));
    this.#endTimer.unref();
  }

  /** #check is the callback of the timer. Most often the end of trust has moved on by then. */
  #check(): void {
    if (this.holds()) this.#setEndTimer();
    else this.#onEnd();
  }

  /** #paceHeartbeats sends a heartbeat if one is due, checks that the last one was acknowledged, and sets the timer. */
  #paceHeartbeats(session: Session, now: number): void {
    if (!session.sendsHeartbeats) {
      // The node takes no heartbeats. This call shows that the process is not suspended.
      if (this.holds(now)) this.#until = now + session.trustPeriod;
      this.#setHeartbeatTimer(session, now, now + session.trustPeriod / 4);
      return;
    }
    const beats = session.heartbeats;
    if (now >= beats.nextAt) {
      beats.nextAt = now + session.sessionTtl / 4;
      session.out.heartbeat = beats.queue(now);
      session.wake();
    }
    this.#setHeartbeatTimer(session, now, Math.min(beats.nextAt, checkAnswer(session, now)));
  }

  /** #reportIfBlocked reports a timer that is late, because a handler has blocked the event loop. */
  #reportIfBlocked(session: Session, now: number): void {
    const late = now - session.heartbeats.timerAt;
    if (late < (session.sessionTtl || session.leaseTtl) / 8 || now < this.#blockedReportAt) return;
    this.#blockedReportAt = now + blockedReportPause;
    this.#onBlocked(late);
  }

  #setHeartbeatTimer(session: Session, now: number, at: number): void {
    clearTimeout(this.#heartbeatTimer);
    if (this.#isStopped) return;
    session.heartbeats.timerAt = at;
    const beat = () => {
      if (this.#session !== session) return;
      const now = performance.now();
      this.#reportIfBlocked(session, now);
      this.#paceHeartbeats(session, now);
    };
    this.#heartbeatTimer = setTimeout(beat, Math.max(1, Math.ceil(at - now)));
    this.#heartbeatTimer.unref();
  }
}

/** blockedReportPause is the time between two reports of a blocked event loop, in milliseconds. */
const blockedReportPause = 60_000;

/** checkAnswer reports a session whose node does not acknowledge heartbeats. It returns when to check again. */
function checkAnswer(session: Session, now: number): number {
  const beats = session.heartbeats;
  const ackTimeout = session.sessionTtl / 3;
  const overdueAt = beats.overdueAt(ackTimeout);
  if (overdueAt === Infinity) return Infinity;
  // After a suspension of the process the acknowledgement may not be read yet.
  const isLate = now - beats.timerAt > ackTimeout / 2;
  if (isLate || now < overdueAt) return Math.max(overdueAt, now + ackTimeout / 4);
  beats.hasReportedSilence = true;
  session.unresponsive.fire();
  return Infinity;
}
