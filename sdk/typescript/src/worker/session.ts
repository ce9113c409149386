import { create } from "@bufbuild/protobuf";
import {
  type Hello,
  type Welcome,
  WorkerService,
  type WorkRequest,
  WorkRequestSchema,
  type WorkResponse,
  type WorkResponseSchema,
} from "../gen/fermata/v1/worker_service_pb.js";
import { toFermataError } from "../client/errors.js";
import { toMilliseconds } from "../client/messages.js";
import type { Connection } from "../net/connection.js";
import { BidiStream } from "../net/stream.js";
import { RateMeter } from "./gather.js";
import { Heartbeats } from "./heartbeats.js";
import { Outbox } from "./outbox.js";
import { Trigger } from "./trigger.js";

/** closeTimeout bounds the wait for a node to end a stream that the worker has closed, in milliseconds. */
const closeTimeout = 2000;
/** returnRepeatPeriod is how long a dead stream may go unnoticed: as long as pings take. */
const returnRepeatPeriod = 15_000;
/** defaultLeaseTtl is used if a Welcome has no lease_ttl. */
const defaultLeaseTtl = 30_000;

/** SessionEvents is what a session reports. */
export interface SessionEvents {
  receive(session: Session, response: WorkResponse): void;
  /** flushed: everything that was taken from the outbox is written. */
  flushed(session: Session): void;
  ended(session: Session): void;
}

/** Session is one stream to one node. */
export class Session {
  readonly out = new Outbox();
  readonly heartbeats = new Heartbeats();
  readonly ended = new Trigger<void>();
  /** drained has the addresses of a Drain. */
  readonly drained = new Trigger<string[]>();
  /** relocated has the addresses of a Relocate: the session goes on until there is another one. */
  readonly relocated = new Trigger<string[]>();
  /** unresponsive: the acknowledgement of a heartbeat is overdue. */
  readonly unresponsive = new Trigger<void>();
  readonly leaseTtl: number;
  readonly sessionTtl: number;
  readonly node: string;
  readonly welcomedAt = performance.now();
  readonly resultRate = new RateMeter();
  isSending = false;
  /** isClean: the node ended the stream without an error. */
  isClean = false;
  error: unknown;
  /** drainReceived: the node asked this worker to connect to another one. */
  drainReceived = false;
  closedToLeases = false;
  /** isSuperseded: another node was asked to take the leases over. */
  isSuperseded = false;
  /** isStopAnnounced: the node was sent, or will be before the end of the stream, that this worker stops. */
  isStopAnnounced = false;
  readonly #stream: OpenStream;
  readonly #events: SessionEvents;
  /** #recentReturns has when each lease was returned, the oldest first. */
  readonly #recentReturns = new Map<string, number>();
  #isClosing = false;
  #wakeScheduled = false;
  #flushTimer: NodeJS.Timeout | undefined;
  #closeTimer: NodeJS.Timeout | undefined;

  constructor(
    stream: OpenStream,
    readonly welcome: Welcome,
    readonly epoch: number,
    readonly helloAt: number,
    events: SessionEvents,
  ) {
    this.#stream = stream;
    this.#events = events;
    this.leaseTtl = (welcome.leaseTtl && toMilliseconds(welcome.leaseTtl)) || defaultLeaseTtl;
    this.sessionTtl = welcome.sessionTtl ? toMilliseconds(welcome.sessionTtl) : 0;
    this.node = welcome.node;
  }

  get address(): string {
    return this.#stream.connection.address;
  }

  /** lastContact is when something last arrived from the node. */
  get lastContact(): number {
    return this.#stream.connection.lastContact;
  }

  get sendsHeartbeats(): boolean {
    return this.sessionTtl > 0;
  }

  /** stopMargin is how long handlers have to return after trust has ended. */
  get stopMargin(): number {
    return stopMarginOf(this.sendsHeartbeats ? this.sessionTtl : this.leaseTtl);
  }

  /** trustPeriod is how long leases may be trusted after a confirmation. A node that drains keeps leases unchanged when
   * the stream ends. Nodes renew leases every third of their life, so the last renewal may be that old. */
  get trustPeriod(): number {
    if (this.sendsHeartbeats && !this.drainReceived) return this.sessionTtl - this.stopMargin;
    return this.leaseTtl - this.leaseTtl / 3 - stopMarginOf(this.leaseTtl);
  }

  /** run receives until the stream ends, and sends meanwhile. */
  async run(): Promise<void> {
    this.#stream.send(() => this.#nextMessages());
    const error = await this.#stream.receive((response) => this.#events.receive(this, response));
    this.isClean = error === undefined;
    if (error) this.error = this.#stream.abortReason ?? toFermataError(error);
    clearTimeout(this.#closeTimer);
    clearTimeout(this.#flushTimer);
    this.#stream.end();
    this.#events.ended(this);
    this.ended.fire();
  }

  /** wakeWithin sends what is in the outbox after a time in milliseconds, unless something else sends it before. */
  wakeWithin(ms: number): void {
    this.#flushTimer ??= setTimeout(() => this.#stream.wake(), ms);
  }

  /** wake sends what is in the outbox at the end of this turn of the event loop, so that the results of handlers that
   * return at once go into the same message. */
  wake(): void {
    if (this.#wakeScheduled) return;
    this.#wakeScheduled = true;
    setImmediate(() => {
      this.#wakeScheduled = false;
      this.#stream.wake();
    });
  }

  /** returnLease returns a lease whose handler has not started, and remembers it for a while. */
  returnLease(id: string): void {
    this.out.returned.push(id);
    this.#dropOldReturns();
    this.#recentReturns.set(id, performance.now());
    this.wake();
  }

  /** announceStop notifies the node that this worker stops. When the stream ends, the node returns what has not
   * started. So it is called only while no other node has been asked to take over the leases. */
  announceStop(): void {
    if (!this.isStopAnnounced) this.out.draining = true;
    this.isStopAnnounced = true;
    this.wake();
  }

  /** unconfirmedReturns are the leases that an ended session has returned, or should have, without proof that its node
   * read them. A node that was notified of the stop, and has ended the stream without an error, has read everything,
   * and returns by itself what it sent later. */
  unconfirmedReturns(): string[] {
    if (this.isStopAnnounced && this.isClean) return [];
    this.#dropOldReturns();
    return [...new Set([...this.out.returned, ...this.#recentReturns.keys()])];
  }

  #dropOldReturns(): void {
    const since = performance.now() - returnRepeatPeriod;
    for (const [id, at] of this.#recentReturns) {
      if (at >= since) return;
      this.#recentReturns.delete(id);
    }
  }

  /** close sends the outbox, and ends the worker's side of the stream. */
  close(): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    this.#closeTimer = setTimeout(() => this.cancel(new Error("closed by this worker")), closeTimeout);
    this.#stream.wake();
  }

  /** cancel ends the stream and its connection at once. */
  cancel(reason: Error): void {
    this.#stream.cancel(reason);
  }

  #nextMessages(): WorkRequest[] | undefined {
    clearTimeout(this.#flushTimer);
    this.#flushTimer = undefined;
    const messages = this.out.takeMessages();
    this.isSending = messages.length > 0;
    if (messages.length === 0) this.#events.flushed(this);
    return messages.length === 0 && this.#isClosing ? undefined : messages;
  }
}

function stopMarginOf(ttl: number): number {
  return Math.min(ttl / 6, 2000);
}

/** OpenStream is a stream on which the Hello has been sent. */
export class OpenStream {
  readonly #stream: BidiStream<typeof WorkRequestSchema, typeof WorkResponseSchema>;
  #source: (() => WorkRequest[] | undefined) | undefined;
  #isWriting = true; // the Hello
  #isOver = false;
  #abortReason: Error | undefined;

  constructor(
    readonly connection: Connection,
    hello: Hello,
    headers: Headers,
  ) {
    this.#stream = new BidiStream(connection, WorkerService.method.work, headers);
    this.#write([create(WorkRequestSchema, { message: { case: "hello", value: hello } })]);
  }

  /** abortReason is why this worker has ended the stream. */
  get abortReason(): Error | undefined {
    return this.#abortReason;
  }

  /** receiveWelcome waits for the first message. */
  async receiveWelcome(timeoutMs: number): Promise<Welcome> {
    const timer = setTimeout(() => this.cancel(new Error("no Welcome in time")), timeoutMs);
    const first = new Trigger<WorkResponse | undefined>();
    this.#stream.receive((response) => {
      this.#stream.pause();
      first.fire(response);
    });
    const error = await Promise.race([first.fired.then(() => undefined), this.#stream.ended]);
    clearTimeout(timer);
    const message = first.value?.message;
    if (message?.case === "welcome") return message.value;
    throw this.#abortReason ?? error ?? new Error("the first message is not a Welcome");
  }

  /** receive passes all further messages to a function, until the stream ends. It returns the error of the stream;
   * undefined: the node has ended it with the status OK. */
  receive(take: (response: WorkResponse) => void): Promise<Error | undefined> {
    this.#stream.receive(take);
    return this.#stream.ended;
  }

  /** send makes a source supply all further messages: it is asked again when everything is written, and returns
   * undefined to end this side of the stream. */
  send(source: () => WorkRequest[] | undefined): void {
    this.#source = source;
    this.wake();
  }

  wake(): void {
    if (this.#isWriting || this.#isOver || !this.#source) return;
    const messages = this.#source();
    if (messages === undefined) this.#closeSend();
    else if (messages.length > 0) this.#write(messages);
  }

  cancel(reason: Error): void {
    this.#abortReason ??= reason;
    this.end();
  }

  /** end frees the connection. */
  end(): void {
    this.#isOver = true;
    this.#stream.pause();
    this.connection.destroy();
  }

  #write(messages: WorkRequest[]): void {
    this.#isWriting = true;
    this.#stream.write(messages, () => {
      this.#isWriting = false;
      this.wake();
    });
  }

  #closeSend(): void {
    this.#isOver = true;
    this.#stream.closeSend();
  }
}
