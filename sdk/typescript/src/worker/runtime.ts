import { create } from "@bufbuild/protobuf";
import {
  type Cancel,
  Cancel_Reason,
  HelloSchema,
  type Hello,
  type Lease,
  type ResultAck,
  ResultAck_Status,
  Result_Outcome,
  type WorkResponse,
} from "../gen/fermata/v1/worker_service_pb.js";
import { isLoopback } from "../net/address.js";
import type { Connection } from "../net/connection.js";
import { readToken } from "../net/token.js";
import { Attempt, Phase, type Stopping } from "./attempt.js";
import { gatherTime, mayGather } from "./gather.js";
import { runWithin } from "./strays.js";
import type { AttemptEnded } from "./errors.js";
import type { ResolvedOptions } from "./options.js";
import { errorName, type HandlerEnd, outcomeName, resultOf } from "./outcome.js";
import { OpenStream, Session } from "./session.js";
import type { Handler } from "./task.js";
import { Trigger } from "./trigger.js";
import { Trust } from "./trust.js";

/** maxStartTime is how long handlers are started in a row before the event loop goes on, in milliseconds: handlers that
 * are not asynchronous run meanwhile, and heartbeats wait. */
const maxStartTime = 20;
/** maxSlotWait is how long an attempt may wait for a slot before it is returned, in milliseconds. */
const maxSlotWait = 50;
const resendInterval = 1000;

/** Runtime is the state of a running worker: its attempts and its session. An attempt enters at the first phase that
 * applies, and leaves when its result is acknowledged, or its lease returned or given up. */
export class Runtime {
  /** onAddresses receives the addresses that nodes advertise. */
  onAddresses: (addresses: string[]) => void = () => {};
  /** linkError is why there is no session. */
  linkError: unknown = new Error("not connected yet");
  /** idle fires when the worker drains and nothing is left to run or send. */
  readonly idle = new Trigger<void>();
  cutOffCount = 0;

  readonly #handlers: ReadonlyMap<string, Handler>;
  readonly #attempts = new Map<string, Attempt>();
  #waiting: Attempt[] = [];
  #ready: Attempt[] = [];
  readonly #early = new Set<Attempt>();
  #slotsTaken = 0;
  #isStarting = false;
  #pendingReturns: string[] = [];
  #pendingLosses = new Set<string>();

  #current: Session | undefined;
  #epoch = 0;
  /** #helloEpoch is that of the Hello that is not answered yet; 0: none. */
  #helloEpoch = 0;
  #leaseTtl = 30_000;
  readonly #trust = new Trust(
    () => this.#endTrust(),
    (ms) => this.#warnOfBlockedLoop(ms),
  );
  #stopping: Stopping | undefined;
  #isDraining = false;

  #lateTimer: NodeJS.Timeout | undefined;
  readonly #resendTimer: NodeJS.Timeout;
  readonly #earlyTimers = new Map<Attempt, NodeJS.Timeout>();

  constructor(
    readonly options: ResolvedOptions,
    handlers: ReadonlyMap<string, Handler>,
  ) {
    this.#handlers = handlers;
    this.#resendTimer = setInterval(() => this.#resendUnacknowledged(), resendInterval);
    this.#resendTimer.unref();
  }

  /** session is the current one. */
  get session(): Session | undefined {
    return this.#current;
  }

  get isDraining(): boolean {
    return this.#isDraining;
  }

  get slotsTaken(): number {
    return this.#slotsTaken;
  }

  get attemptCount(): number {
    return this.#attempts.size;
  }

  get hasPendingReturns(): boolean {
    return this.#pendingReturns.length > 0;
  }

  /** stop ends all timers. */
  stop(): void {
    clearInterval(this.#resendTimer);
    clearTimeout(this.#lateTimer);
    this.#trust.stop();
    for (const timer of this.#earlyTimers.values()) clearTimeout(timer);
  }

  // Leases

  receive(session: Session, response: WorkResponse): void {
    const { message } = response;
    switch (message.case) {
      case "leases":
        return this.#acceptLeases(session, message.value.leases);
      case "resultAcks":
        return this.#handleAcks(session, message.value.acks);
      case "cancel":
        return this.#cancelLeases(session, message.value);
      case "heartbeatAck":
        return this.#trust.acknowledge(session, message.value);
      case "addresses":
        return this.onAddresses(message.value.addresses);
      case "relocate":
        return session.relocated.fire(message.value.addresses);
      case "drain":
        this.#leaveNode(session);
        return session.drained.fire(message.value.addresses);
      default: // of a later version
    }
  }

  /** #acceptLeases adds leases. Those without a free slot wait in order. */
  #acceptLeases(session: Session, leases: Lease[]): void {
    const now = performance.now();
    for (const lease of leases) {
      const have = this.#attempts.get(lease.leaseId);
      if (have) {
        // The node has sent the lease again, so the worker sends the result again.
        if (have.phase === Phase.Ended) this.#deliverResult(have);
        continue;
      }
      if (this.#isDraining || session.closedToLeases || session !== this.#current) {
        session.returnLease(lease.leaseId);
        continue;
      }
      const a = new Attempt(lease);
      a.receivedAt = now;
      a.startAt = now + a.startAfter;
      a.knownEpoch = session.epoch;
      this.#attempts.set(a.id, a);
      if (this.#slotsTaken < this.options.slots) {
        this.#takeSlot(a, now);
      } else {
        this.#waiting.push(a);
        this.#setLateTimer(maxSlotWait);
        session.wake(); // the results that are gathered have slots, for the node
      }
    }
    this.#startReady();
  }

  /** #takeSlot gives an attempt a slot. The caller calls #startReady. */
  #takeSlot(a: Attempt, now: number): void {
    this.#slotsTaken++;
    if (a.startAfter > 0 && now < a.startAt) this.#holdUntilDue(a, now);
    else this.#makeReady(a);
  }

  #makeReady(a: Attempt): void {
    a.phase = Phase.Ready;
    this.#ready.push(a);
  }

  /** #holdUntilDue keeps an attempt that has a slot until it is due, whatever happens to the stream. */
  #holdUntilDue(a: Attempt, now: number): void {
    a.phase = Phase.Early;
    this.#early.add(a);
    this.#earlyTimers.set(
      a,
      setTimeout(() => this.#startIfDue(a), Math.max(1, Math.round(a.startAt - now))),
    );
  }

  #startIfDue(a: Attempt): void {
    if (a.phase !== Phase.Early) return;
    const now = performance.now();
    if (now < a.startAt) {
      // timers may fire up to a millisecond early
      this.#earlyTimers.set(
        a,
        setTimeout(() => this.#startIfDue(a), 1),
      );
      return;
    }
    this.#early.delete(a);
    this.#earlyTimers.delete(a);
    this.#makeReady(a);
    this.#startReady();
  }

  /** #startReady starts the handlers of ready attempts. All handlers start here, and none while the leases are not
   * trusted. */
  #startReady(): void {
    if (this.#isStarting) return;
    this.#isStarting = true;
    const until = performance.now() + maxStartTime;
    for (let i = 0; i < this.#ready.length; i++) {
      const a = this.#ready[i]!;
      if (a.phase !== Phase.Ready) continue;
      const now = performance.now();
      if (!this.#trust.holds(now)) {
        this.#ready.splice(0, i);
        this.#isStarting = false;
        return this.#trust.endIfOver();
      }
      if (now >= until) {
        this.#ready.splice(0, i);
        return this.#startLater();
      }
      this.#start(a, now);
    }
    this.#ready = [];
    this.#isStarting = false;
  }

  /** #startLater starts the remaining handlers after the event loop has sent and received what waits. */
  #startLater(): void {
    setImmediate(() => {
      this.#isStarting = false;
      this.#startReady();
    });
  }

  #start(a: Attempt, now: number): void {
    a.phase = Phase.Running;
    a.startedAt = now;
    a.context.startTimeout(now, a.task.timeoutMs);
    if (this.#current) {
      this.#current.out.started.push(a);
      this.#scheduleFlush(this.#current, undefined, now);
    }
    const handler = this.#handlers.get(a.task.handler) ?? missingHandler;
    let value: unknown;
    try {
      value = this.options.catchStrayErrors ? runWithin(a, this.#failStray, handler) : handler(a.task);
    } catch (error) {
      this.#finishAttempt(a, true, error);
      return;
    }
    if (isThenable(value)) {
      value.then(
        (v) => this.#finishAttempt(a, false, v),
        (error: unknown) => this.#finishAttempt(a, true, error),
      );
    } else {
      this.#finishAttempt(a, false, value);
    }
  }

  /** #failStray fails an attempt whose handler left an error uncaught. If that has ended, the error is only logged. */
  readonly #failStray = (a: Attempt, error: unknown): void => {
    if (a.phase === Phase.Running) this.#finishAttempt(a, true, error);
    else this.#logAttempt("error", "a handler that has ended left an error uncaught", a, { error: errorName(error) });
  };

  /** #finishAttempt records the end of a handler and gives its slot to the first waiting attempt. */
  #finishAttempt(a: Attempt, failed: boolean, value: unknown): void {
    if (a.phase !== Phase.Running) return; // an error that it left uncaught came first
    const now = performance.now();
    const end: HandlerEnd = { failed, value, cause: a.context.causeAt(now), tookMs: now - a.startedAt };
    a.context.finish();
    a.result = resultOf(a.task, end);
    a.phase = Phase.Ended;
    this.#slotsTaken--;
    if (end.failed)
      this.#logAttempt("info", "attempt failed", a, { outcome: outcomeName(end), error: errorName(end.value) });
    if (a.stopping && --a.stopping.remaining === 0) this.#endStopping(a.stopping);
    this.#settle(a, end.failed ? end.cause : undefined);
    this.#startWaiting(now);
    this.#startReady();
    this.#checkIdle();
  }

  /** #settle delivers a result, unless the handler failed because the lease was lost or the worker stops: that is no
   * failure of the handler, and the attempt is leased again. */
  #settle(a: Attempt, cause: AttemptEnded | undefined): void {
    if (cause?.kind === "worker-stops") {
      this.cutOffCount++;
      this.#giveUp(a);
      return;
    }
    a.hasVoidResult = cause?.kind === "lease-lost";
    this.#deliverResult(a, true);
  }

  #startWaiting(now: number): void {
    while (this.#waiting.length > 0) {
      const a = this.#waiting.shift()!;
      if (a.phase !== Phase.Queued) continue;
      this.#takeSlot(a, now);
      return;
    }
  }

  #forget(a: Attempt): void {
    a.phase = Phase.Gone;
    this.#attempts.delete(a.id);
  }

  /** #releaseUnstarted removes an attempt that has a slot and has not started, and frees the slot. */
  #releaseUnstarted(a: Attempt): void {
    clearTimeout(this.#earlyTimers.get(a));
    this.#earlyTimers.delete(a);
    this.#early.delete(a);
    this.#slotsTaken--;
    a.phase = Phase.Gone;
    this.#startWaiting(performance.now());
  }

  // Leases that are given back or given up

  /** #returnWaiting returns waiting attempts that match, on the session if its node knows them, else on the next one.
   * */
  #returnWaiting(session: Session | undefined, matches: (a: Attempt) => boolean = () => true): void {
    const kept: Attempt[] = [];
    for (const a of this.#waiting) {
      if (a.phase !== Phase.Queued) continue;
      if (!matches(a)) {
        kept.push(a);
        continue;
      }
      this.#forget(a);
      this.#reportReturned(a, session);
    }
    this.#waiting = kept;
  }

  /** #returnEarly returns attempts that are not due yet. Attempts named in a Hello count as started, and as failed if
   * they are returned; the caller keeps those, and they start when due. */
  #returnEarly(session: Session | undefined, matches: (a: Attempt) => boolean = () => true): void {
    for (const a of [...this.#early].filter(matches)) {
      this.#releaseUnstarted(a);
      this.#forget(a);
      this.#reportReturned(a, session);
    }
  }

  /** #returnReady returns attempts that have a slot and have not started. */
  #returnReady(session: Session | undefined): void {
    for (const a of this.#ready) {
      if (a.phase !== Phase.Ready) continue;
      this.#slotsTaken--;
      this.#forget(a);
      this.#reportReturned(a, session);
    }
    if (!this.#isStarting) this.#ready = [];
  }

  #reportReturned(a: Attempt, session: Session | undefined): void {
    if (session && a.knownEpoch === session.epoch) session.returnLease(a.id);
    else this.#pendingReturns.push(a.id);
  }

  #setLateTimer(delay: number): void {
    this.#lateTimer ??= setTimeout(() => this.#returnLateAttempts(), delay);
  }

  /** #returnLateAttempts returns attempts that have waited too long for a slot. */
  #returnLateAttempts(): void {
    this.#lateTimer = undefined;
    if (!this.#current) return; // the next Hello returns what still waits
    const now = performance.now();
    this.#returnWaiting(this.#current, (a) => now - a.receivedAt >= maxSlotWait);
    const first = this.#waiting[0];
    if (first) this.#setLateTimer(Math.max(1, maxSlotWait - (now - first.receivedAt)));
    this.#checkIdle();
  }

  /** #giveUp forgets an ended attempt whose lease is lost, and reports the loss. */
  #giveUp(a: Attempt): void {
    this.#forget(a);
    this.#reportLost([a.id]);
  }

  /** #reportLost reports leases that this process has given up, because the network ended them and not the handler.
   * Reports are repeated on each session until a node acknowledges them. Older nodes do not, so the oldest are dropped.
   * */
  #reportLost(ids: string[]): void {
    const fresh = ids.filter((id) => !this.#pendingLosses.has(id));
    for (const id of fresh) this.#pendingLosses.add(id);
    for (const id of this.#pendingLosses) {
      if (this.#pendingLosses.size <= 2 * this.options.slots + 1024) break;
      this.#pendingLosses.delete(id);
    }
    if (!this.#current || fresh.length === 0) return;
    this.#current.out.lost = this.#current.out.lost.concat(fresh);
    this.#current.wake();
  }

  // Results

  /** #deliverResult puts the result of an ended attempt into the outbox of the current session. Without a session, or
   * while another node is asked to take the leases over, the result waits for the next session. isNew: the attempt has
   * just ended. */
  #deliverResult(a: Attempt, isNew = false): void {
    const session = this.#current;
    if (!session || session.isSuperseded) {
      if (a.hasVoidResult && a.knownEpoch !== this.#helloEpoch) this.#giveUp(a);
      return;
    }
    if (a.hasVoidResult) {
      this.#discardVoidResult(a, session);
      return;
    }
    a.sentOn = session;
    a.sentAt = performance.now();
    session.out.results.push(a);
    if (isNew) this.#scheduleFlush(session, a, a.sentAt);
    else session.wake();
  }

  /** #scheduleFlush schedules sending starts and results: at the end of this turn of the event loop, or later while
   * they are gathered (gather.ts). ended is the attempt that has a result; undefined: there is only a start. */
  #scheduleFlush(session: Session, ended: Attempt | undefined, now: number): void {
    if (ended) session.resultRate.count(now);
    const gathers = mayGather({
      rate: session.resultRate.perSecond,
      ended,
      slots: this.options.slots,
      slotsTaken: this.#slotsTaken,
      unsent: session.out.results.length,
      isDraining: this.#isDraining || session.closedToLeases,
    });
    if (gathers) session.wakeWithin(gatherTime);
    else session.wake();
  }

  /** #discardVoidResult forgets an attempt that failed because its lease was lost. It sends Returned if the node waits
   * for an answer to free the slot, or has just taken the lease over. */
  #discardVoidResult(a: Attempt, session: Session): void {
    if (a.lostEpoch === session.epoch || a.knownEpoch === session.epoch) {
      session.out.returned.push(a.id);
      session.wake();
    }
    this.#giveUp(a);
  }

  /** #resendResults sends all results again that are not acknowledged. */
  #resendResults(): void {
    for (const a of [...this.#attempts.values()]) {
      if (a.phase === Phase.Ended) this.#deliverResult(a);
    }
  }

  /** #resendUnacknowledged sends results again that were not acknowledged within the life of a lease. */
  #resendUnacknowledged(): void {
    const now = performance.now();
    for (const a of this.#current ? [...this.#attempts.values()] : []) {
      if (a.phase === Phase.Ended && now - a.sentAt > this.#leaseTtl) this.#deliverResult(a);
    }
  }

  /** #handleAcks stops sending acknowledged results. After another node was asked to take the leases over, only its
   * acknowledgements count, because it needs the result of every lease named to it. */
  #handleAcks(session: Session, acks: ResultAck[]): void {
    if (session !== this.#current || session.isSuperseded) return;
    for (const ack of acks) {
      const a = this.#attempts.get(ack.leaseId);
      if (!a) this.#pendingLosses.delete(ack.leaseId);
      if (!a || a.phase !== Phase.Ended) continue;
      this.#forget(a);
      if (ack.status === ResultAck_Status.STALE) {
        this.#reportLost([a.id]);
        this.#logAttempt("info", "result discarded, its lease had ended", a, {});
      }
    }
    this.#checkIdle();
  }

  // Cancellation

  #cancelLeases(session: Session, cancel: Cancel): void {
    for (const id of cancel.leaseIds) {
      const a = this.#attempts.get(id);
      if (!a) {
        if (cancel.reason === Cancel_Reason.LEASE_LOST) session.out.returned.push(id);
      } else if (cancel.reason === Cancel_Reason.LEASE_LOST) {
        this.#loseLease(session, a);
      } else if (cancel.reason === Cancel_Reason.TIMED_OUT) {
        this.#timeOut(a);
      } else {
        this.#cancel(session, a);
      }
    }
    session.wake();
    this.#startReady();
    this.#checkIdle();
  }

  /** #loseLease handles a node's report that a lease is lost. A node from which a later Hello took the lease reports
   * that of a lease that is still valid; such a report is ignored. */
  #loseLease(session: Session, a: Attempt): void {
    if (a.knownEpoch > session.epoch) return;
    a.isLost = true;
    a.lostEpoch = session.epoch;
    if (this.#removeUnstarted(a)) session.out.returned.push(a.id);
    else if (a.phase === Phase.Running) a.context.end("lease-lost");
  }

  /** #cancel cancels a handler. An attempt that has not started is returned, because a result would count as a start;
   * the run is marked as cancelled and ends with that. */
  #cancel(session: Session, a: Attempt): void {
    if (this.#removeUnstarted(a)) session.returnLease(a.id);
    else if (a.phase === Phase.Running) a.context.end("cancelled");
  }

  /** #timeOut ends a handler. For an attempt that has not started it reports a timeout. */
  #timeOut(a: Attempt): void {
    if (a.phase === Phase.Running) {
      a.context.end("timeout");
    } else if (this.#removeUnstarted(a)) {
      this.#attempts.set(a.id, a);
      a.phase = Phase.Ended;
      const error = "the attempt's timeout has passed before it started";
      a.result = { outcome: Result_Outcome.TIMED_OUT, error, output: undefined, retryAfterMs: 0, tookMs: 0 };
      this.#deliverResult(a);
    }
  }

  /** #removeUnstarted forgets an attempt that has not started, and reports whether that is so. */
  #removeUnstarted(a: Attempt): boolean {
    if (a.phase !== Phase.Queued && a.phase !== Phase.Early && a.phase !== Phase.Ready) return false;
    if (a.phase !== Phase.Queued) this.#releaseUnstarted(a);
    this.#forget(a);
    return true;
  }

  // Trust

  /** #endTrust gives up all leases and ends the session. The next Hello states which leases are left. */
  #endTrust(): void {
    const session = this.#current;
    const error = new Error("the node did not acknowledge a heartbeat in time, or this process was suspended");
    if (session) {
      this.#trust.leave(session);
      this.#current = undefined;
      this.linkError = error;
    }
    this.#loseAllLeases();
    session?.cancel(error);
  }

  #warnOfBlockedLoop(ms: number): void {
    const text = "event loop was blocked, and heartbeats wait: move heavy work of handlers to node:worker_threads";
    this.options.logger.warn(text, { blocked_ms: Math.round(ms) });
  }

  /** #loseAllLeases gives up all leases when they are no longer trusted. Attempts that have not started are returned on
   * the next session, uncounted if their leases are still valid. */
  #loseAllLeases(): void {
    this.#returnWaiting(undefined);
    this.#returnEarly(undefined);
    this.#returnReady(undefined);
    this.#reportLost(this.#pendingReturns);
    const stopping: Attempt[] = [];
    let lost = 0;
    for (const a of [...this.#attempts.values()]) {
      if (a.isLost) continue;
      lost++;
      a.isLost = true;
      a.lostEpoch = 0;
      a.lostAt = performance.now();
      a.sentOn = undefined;
      if (a.phase === Phase.Running) stopping.push(a);
      else if (a.phase === Phase.Ended) this.#deliverResult(a);
    }
    if (stopping.length > 0) this.#trackStopping(stopping);
    for (const a of stopping) a.context.end("lease-lost");
    this.#checkIdle();
    if (lost > 0) this.options.logger.warn("failed to confirm leases in time, leases lost", { attempts: lost });
  }

  /** #trackStopping tracks cancelled handlers until their stop margin is over. */
  #trackStopping(attempts: Attempt[]): void {
    const done = new Trigger<void>();
    const stopping: Stopping = { remaining: attempts.length, done: done.fired, end: () => done.fire() };
    this.#stopping = stopping;
    for (const a of attempts) a.stopping = stopping;
    setTimeout(() => this.#endStopping(stopping), this.#trust.stopMargin).unref();
  }

  #endStopping(stopping: Stopping): void {
    if (this.#stopping !== stopping) return;
    this.#stopping = undefined;
    stopping.end();
  }

  // Sessions: a Hello names the leases that a node is to take over, and the previous session is superseded. Then the
  // new session is attached, or the Hello is undone and the previous session continues.

  /** openSession sends a Hello with all live leases, and waits for the Welcome. */
  async openSession(connection: Connection, timeoutMs: number, stop: Trigger<void>): Promise<Session> {
    const headers = await this.#headersFor(connection.address);
    await this.#handlersStopped(stop);
    if (stop.hasFired) throw new Error("the worker stops");
    const { hello, hasUnconfirmedLeases } = this.#buildHello();
    const helloAt = performance.now();
    let stream: OpenStream | undefined;
    try {
      stream = new OpenStream(connection, hello, headers);
      const welcome = await stream.receiveWelcome(timeoutMs);
      const session = new Session(stream, welcome, hello.sessionEpoch, helloAt, {
        receive: (s, response) => this.receive(s, response),
        flushed: () => this.#checkIdle(),
        ended: (s) => this.#detachSession(s),
      });
      session.heartbeats.hasUnconfirmedLeases = hasUnconfirmedLeases;
      return session;
    } catch (error) {
      stream?.cancel(new Error("refused"));
      this.#undoHello(hello.sessionEpoch);
      throw error;
    }
  }

  async #headersFor(address: string): Promise<Headers> {
    const { token, tls, addresses, version } = this.options;
    const headers = new Headers({ "user-agent": `fermata-worker-typescript/${version}` });
    const isProtected = tls !== undefined || [address, ...addresses].every(isLoopback);
    if (token !== undefined && isProtected) headers.set("authorization", `Bearer ${await readToken(token)}`);
    return headers;
  }

  /** #handlersStopped waits for cancelled handlers. A lease that a Hello does not name has ended for the node, which
   * may lease the job again. */
  async #handlersStopped(stop: Trigger<void>): Promise<void> {
    this.#trust.endIfOver();
    while (this.#stopping && !stop.hasFired) await Promise.race([this.#stopping.done, stop.fired]);
  }

  #buildHello(): { hello: Hello; hasUnconfirmedLeases: boolean } {
    this.#epoch++;
    this.#helloEpoch = this.#epoch;
    // Attempts that have not started are returned: a node would count them as started.
    this.#returnWaiting(this.#current);
    if (this.#current) {
      this.#current.closedToLeases = true;
      this.#current.isSuperseded = true;
      this.#current.wake();
    }
    const live = this.#liveLeases();
    const o = this.options;
    const hello = create(HelloSchema, {
      workerId: o.id,
      namespace: o.namespace,
      queues: o.queues,
      slots: o.slots,
      sessionEpoch: this.#epoch,
      liveLeaseIds: live.map((a) => a.id),
      version: o.version,
      labels: o.labels,
      prefetch: o.prefetch,
      supportsStartAfter: true,
      supportsHeartbeats: true,
    });
    return { hello, hasUnconfirmedLeases: live.some((a) => a.reliesOnLease) };
  }

  /** #liveLeases lists the leases to take over: first those that run, then those that have a slot, then ended ones. A
   * Hello has room for twice the slots and 1024 more. */
  #liveLeases(): Attempt[] {
    const now = performance.now();
    const all = [...this.#attempts.values()];
    const live = [Phase.Running, Phase.Ready, Phase.Early, Phase.Ended].flatMap((phase) =>
      all.filter((a) => a.phase === phase && (!a.isLost || a.resultMayCount || a.holdsOnlySlot(now, this.#leaseTtl))),
    );
    const named = live.slice(0, 2 * this.options.slots + 1024);
    for (const a of named) {
      a.knownEpoch = this.#epoch;
      a.wasNamedInHello = true;
    }
    return named;
  }

  /** attachSession makes a welcomed session the current one. */
  attachSession(session: Session): void {
    this.#trust.endIfOver();
    if (this.#current) {
      this.#current.out.started = [];
      this.#current.out.results = [];
    }
    this.#current = session;
    this.#helloEpoch = 0;
    this.#leaseTtl = session.leaseTtl;
    if (this.#isDraining) session.announceStop();
    this.#sendPendingReturns(session);
    session.out.lost = [...this.#pendingLosses];
    this.#resendResults();
    session.heartbeats.hasUnconfirmedLeases &&= [...this.#attempts.values()].some((a) => a.reliesOnLease);
    this.#trust.begin(session);
    session.wake();
    this.#startReady();
  }

  #sendPendingReturns(session: Session): void {
    for (const id of this.#pendingReturns) session.returnLease(id);
    this.#pendingReturns = [];
  }

  /** #undoHello reverts #buildHello. The previous session's node decides about its leases again. */
  #undoHello(epoch: number): void {
    this.#helloEpoch = 0;
    if (this.#current) {
      this.#current.isSuperseded = false;
      this.#current.closedToLeases = this.#current.drainReceived;
      if (this.#isDraining) this.#current.announceStop();
      for (const a of this.#attempts.values()) {
        if (a.knownEpoch === epoch) a.knownEpoch = this.#current.epoch;
      }
    }
    this.#resendResults();
    this.#current?.wake();
    this.#checkIdle();
  }

  /** #leaveNode records that the session's node drains, and returns attempts that have not started. */
  #leaveNode(session: Session): void {
    session.closedToLeases = true;
    session.drainReceived = true;
    this.#trust.extendForDrain(session);
    this.#returnWaiting(session);
    session.wake();
  }

  /** #detachSession removes an ended session. Its leases stay trusted for the trust period without a session. */
  #detachSession(session: Session): void {
    for (const a of [...this.#attempts.values()]) {
      if (a.phase === Phase.Ended && a.isLost && a.sentOn === session) this.#giveUp(a);
    }
    this.#pendingReturns = this.#pendingReturns.concat(session.unconfirmedReturns());
    if (this.#current !== session) {
      if (this.#current) this.#sendPendingReturns(this.#current);
      return;
    }
    this.#current = undefined;
    this.linkError = session.error ?? new Error("the node ended the stream");
    this.#resendResults(); // results that failed because the lease was lost cannot be reported now
    this.#trust.endSession(session);
    this.#checkIdle();
  }

  // The end

  /** beginDrain stops taking attempts. */
  beginDrain(): void {
    this.#isDraining = true;
    this.#returnWaiting(this.#current);
    this.#returnEarly(this.#current, (a) => !a.wasNamedInHello);
    // If another node is asked to take over the leases, one of the two is notified when that has answered.
    if (this.#current?.isSuperseded) this.#current.wake();
    else this.#current?.announceStop();
    this.#checkIdle();
  }

  /** haltHandlers makes all handlers end. */
  haltHandlers(): void {
    this.#returnReady(this.#current);
    this.#returnEarly(this.#current);
    for (const a of [...this.#attempts.values()]) {
      if (a.phase === Phase.Running) a.context.end("worker-stops");
    }
    this.#checkIdle();
  }

  /** #checkIdle fires idle when draining is complete. */
  #checkIdle(): void {
    if (!this.#isDraining || this.idle.hasFired || this.#attempts.size > 0) return;
    const session = this.#current;
    if (!session && this.#pendingReturns.length > 0) return;
    if (session && (session.isSending || !session.out.isEmpty)) return;
    this.idle.fire();
  }

  #logAttempt(level: "info" | "error", message: string, a: Attempt, more: Record<string, unknown>): void {
    const t = a.task;
    this.options.logger[level](message, {
      job: `${t.namespace}/${t.job}`,
      queue: t.queue,
      run: t.run.slice(t.run.lastIndexOf("/") + 1),
      attempt: t.attempt,
      correlation_id: t.correlationId,
      handler: t.handler,
      ...more,
    });
  }
}

const missingHandler: Handler = (task) => {
  throw new Error(`no handler ${JSON.stringify(task.handler)} on this worker`);
};

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === "function";
}
