import { Code, type ConnectError } from "@connectrpc/connect";
import { isStatusOfNode } from "../client/errors.js";
import { isAdvertisable } from "../net/address.js";
import { describeError } from "../net/connection.js";
import { DialSet, type DialResult } from "./dials.js";
import { FailurePacer } from "./log.js";
import { Routes } from "./routes.js";
import type { Runtime } from "./runtime.js";
import type { Session } from "./session.js";
import { Trigger } from "./trigger.js";

/** stableSessionAge is how long a session must last not to count as a failure, in milliseconds. */
const stableSessionAge = 1000;
/** returnTimeout bounds the search for a node that takes back the leases that the last node may not have received. */
const returnTimeout = 5000;
/** spread bounds the random pause before workers reconnect that lost their node at the same time. */
const spread = 100;

/** Link keeps one session open and opens another when it ends. */
export class Link {
  readonly #runtime: Runtime;
  readonly #routes: Routes;
  readonly #stop = new Trigger<void>();
  /** #replaced are the sessions that were closed for another one, until they have ended. */
  #replaced: Session[] = [];
  #failures = 0;
  /** #withoutSince is when the last stable session ended, or of the first attempt to connect. */
  #withoutSince = performance.now();
  #pacer = new FailurePacer();

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
    this.#routes = new Routes(runtime.options.addresses);
    runtime.onAddresses = (addresses) => this.#routes.replaceAdvertised(addresses.filter(isAdvertisable));
  }

  /** stop ends the last session, after its outbox is sent. */
  stop(): void {
    this.#stop.fire();
  }

  /** run returns after stop was called and the last session is closed. */
  async run(): Promise<void> {
    let session = await this.#openSession(this.#stop);
    while (session) {
      await Promise.race([
        this.#stop.fired,
        session.ended.fired,
        session.drained.fired,
        session.relocated.fired,
        session.unresponsive.fired,
      ]);
      if (this.#stop.hasFired) return this.#finish(session);
      session = await this.#next(session);
    }
  }

  async #next(session: Session): Promise<Session | undefined> {
    if (session.ended.hasFired) {
      // A node ends a stream without leases right after a Drain, whose addresses may be the only valid ones.
      if (session.drained.hasFired) this.#preferAddresses(session);
      else {
        this.#handleLostSession(session);
        await this.#pauseRandomly();
      }
      const next = await this.#openSession(this.#stop);
      // It was cut just after it had sent its last returns.
      if (!next && this.#runtime.idle.hasFired) await this.#finish(session);
      return next;
    }
    this.#withoutSince = performance.now();
    if (session.drained.hasFired || session.relocated.hasFired) {
      this.#preferAddresses(session);
    } else {
      this.#log("warn", "node does not acknowledge heartbeats, connecting to another one", session);
    }
    return this.#replaceSession(session);
  }

  /** #replaceSession opens another session and closes this one when that is open. Meanwhile it continues. If the worker
   * stops before, this one is the last session. */
  async #replaceSession(session: Session): Promise<Session | undefined> {
    const next = await this.#openSession(this.#stop, session);
    if (!next) {
      await this.#finish(session);
      return undefined;
    }
    session.close();
    this.#replaced = [...this.#replaced.filter((s) => !s.ended.hasFired), session];
    return next;
  }

  async #openSession(stop: Trigger<void>, before?: Session): Promise<Session | undefined> {
    const { addresses, tls } = this.#runtime.options;
    const dials = new DialSet(this.#routes, addresses, tls, stop.fired, ...(before ? [before.ended.fired] : []));
    try {
      while (!stop.hasFired) {
        const left = before && !before.ended.hasFired ? before : undefined;
        const again = dials.startNext(performance.now(), left?.address);
        const result = await dials.next(again);
        if (!result) continue;
        const session = await this.#tryHello(stop, result);
        if (session) return session;
        dials.startSoon();
      }
      return undefined;
    } finally {
      dials.cancelAll();
    }
  }

  /** #tryHello sends a Hello on a ready connection. It returns undefined if that fails. */
  async #tryHello(
    stop: Trigger<void>,
    { route, connection, error, timeoutMs }: DialResult,
  ): Promise<Session | undefined> {
    if (stop.hasFired) {
      connection?.destroy();
      return undefined;
    }
    if (connection) {
      try {
        const session = await this.#runtime.openSession(connection, timeoutMs, stop);
        this.#routes.markWelcomed(route);
        this.#attach(session);
        return session;
      } catch (thrown) {
        error = thrown;
        connection.destroy();
        const code = codeOfNode(thrown);
        if (code !== undefined && code !== Code.Unknown && code !== Code.Unimplemented) route.hasAnswered = true;
      }
    }
    if (!stop.hasFired) this.#countFailure(route.address, error, isRefusal(error));
    return undefined;
  }

  #countFailure(address: string, error: unknown, refused: boolean): void {
    const now = performance.now();
    this.#failures++;
    const route = this.#routes.find(address);
    if (route && refused) this.#routes.markRefused(route, now, now - this.#withoutSince);
    else if (route) this.#routes.markFailed(route, now, now - this.#withoutSince);
    this.#runtime.linkError = error;
    if (!this.#pacer.isDue(now)) return;
    const text = refused
      ? "node refused the worker: check its token or certificate, and its role for this namespace and these queues"
      : "failed to connect to a node";
    this.#runtime.options.logger.warn(text, { address, error: describeError(error), tries: this.#failures });
  }

  #attach(session: Session): void {
    this.#runtime.attachSession(session);
    this.#routes.replaceAdvertised(session.welcome.addresses.filter(isAdvertisable));
    void session.run();
    this.#pacer = new FailurePacer();
    this.#log("info", "connected", session, { epoch: session.epoch });
  }

  /** #handleLostSession counts and logs a session that ended unexpectedly. */
  #handleLostSession(session: Session): void {
    const now = performance.now();
    const atOnce = now - session.welcomedAt < stableSessionAge;
    this.#failures = atOnce ? this.#failures + 1 : 1;
    if (!atOnce) this.#withoutSince = now;
    this.#routes.markEnded(session.address, now, atOnce, now - this.#withoutSince);
    this.#log("warn", "stream ended, reconnecting", session, {
      error: describeError(session.error ?? "ended by the node"),
    });
  }

  /** #preferAddresses makes the next session try the addresses of a Drain or a Relocate first. A node that only renews
   * an old stream or an expiring credential sends none. */
  #preferAddresses(session: Session): void {
    const addresses = session.drained.value ?? session.relocated.value ?? [];
    this.#withoutSince = performance.now();
    this.#log("info", "node requested a new connection", session, { addresses });
    this.#routes.prefer(addresses.filter(isAdvertisable));
  }

  #pauseRandomly(): Promise<void> {
    const delay = spread / 2 + Math.random() * (spread / 2);
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, delay);
      void this.#stop.fired.then(() => (clearTimeout(timer), resolve()));
    });
  }

  /** #finish closes the last session. If the stream is cut before the node has confirmed that it read everything, the
   * returned leases are sent to another node. The sessions before it have to end first: leases that came on them too late
   * are returned on the last one. */
  async #finish(session: Session): Promise<void> {
    await Promise.all(this.#replaced.map((before) => before.ended.fired));
    session.close();
    await session.ended.fired;
    const late = new Trigger<void>();
    const timer = setTimeout(() => late.fire(), returnTimeout);
    while (this.#runtime.hasPendingReturns && !late.hasFired) {
      this.#handleLostSession(session);
      const next = await this.#openSession(late);
      if (!next) break;
      session = next;
      session.close();
      await session.ended.fired;
    }
    clearTimeout(timer);
  }

  #log(level: "info" | "warn", message: string, session: Session, more: Record<string, unknown> = {}): void {
    this.#runtime.options.logger[level](message, { node: session.node, address: session.address, ...more });
  }
}

/** isRefusal reports whether a node refuses the worker's credential or role. Other nodes will refuse it as well. */
function isRefusal(error: unknown): boolean {
  const code = codeOfNode(error);
  return code === Code.Unauthenticated || code === Code.PermissionDenied;
}

/** codeOfNode returns the code of an error that a node has sent; undefined: the connection failed. */
function codeOfNode(error: unknown): Code | undefined {
  return isStatusOfNode(error) ? (error as ConnectError).code : undefined;
}
