import { Connection, type TlsOptions } from "../net/connection.js";
import { hostOf } from "../net/address.js";
import type { Route, Routes } from "./routes.js";

/** maxDials bounds the connections that are opened concurrently. */
const maxDials = 4;
/** dialStagger is the delay between the starts of two dials. */
const dialStagger = 250;
/** firstDialTimeout bounds the time to connect to an address, and again the time until it answers a Hello. It doubles
 * with each failure: the node may be far away. */
const firstDialTimeout = 2000;
const maxDialTimeout = 5000;

/** DialResult is the result of a dial: a connection or an error. */
export interface DialResult {
  route: Route;
  /** timeoutMs is for the answer to a Hello. */
  timeoutMs: number;
  connection?: Connection;
  error?: unknown;
}

/** DialSet holds the connections that are opened concurrently to find a node. It opens connections only: a Hello takes
 * leases over, so there is one Hello at a time. */
export class DialSet {
  readonly #routes: Routes;
  readonly #configured: readonly string[];
  readonly #tls: TlsOptions | undefined;
  readonly #abort = new AbortController();
  readonly #results: DialResult[] = [];
  readonly #dialing = new Set<Route>();
  #notify: (() => void) | undefined;
  #nextStart = -Infinity;

  /** The wait of next also ends when one of the promises is settled. They are watched once, because a search may last
   * for days. */
  constructor(
    routes: Routes,
    configured: readonly string[],
    tls: TlsOptions | undefined,
    ...others: Promise<unknown>[]
  ) {
    this.#routes = routes;
    this.#configured = configured;
    this.#tls = tls;
    for (const other of others) void other.then(() => this.#notify?.());
  }

  /** startNext opens a connection to the best route if the next dial is due. It returns when to call it again;
   * Infinity: not before a dial has ended. */
  startNext(now: number, avoid: string | undefined): number {
    if (this.#dialing.size >= maxDials) return Infinity;
    if (now < this.#nextStart) return this.#nextStart;
    const { route, at } = this.#routes.claimNext(now, avoid);
    if (!route) return at;
    this.#dialing.add(route);
    this.#nextStart = now + dialStagger;
    void this.#dial(route);
    return this.#nextStart;
  }

  async #dial(route: Route): Promise<void> {
    const timeoutMs = Math.min(firstDialTimeout * 2 ** Math.min(route.failures, 4), maxDialTimeout);
    const result: DialResult = { route, timeoutMs };
    try {
      result.connection = await Connection.open(route.address, {
        tls: this.#tls,
        timeoutMs,
        signal: this.#abort.signal,
        verifyAs: this.#verifyAs(route),
      });
    } catch (error) {
      result.error = error;
    }
    if (this.#abort.signal.aborted) {
      route.isDialing = false;
      result.connection?.destroy();
      return;
    }
    this.#results.push(result);
    this.#notify?.();
  }

  /** #verifyAs is the configured host that the certificate at a learnt address has to name. After a failure the next
   * configured host is used, because certificates may name only some of them. */
  #verifyAs(route: Route): string | undefined {
    if (route.isConfigured) return undefined;
    const hosts = [...new Set(this.#configured.map(hostOf))];
    return hosts[route.totalFailures % hosts.length];
  }

  /** next waits for a result until a time. */
  async next(until: number): Promise<DialResult | undefined> {
    if (this.#results.length === 0) {
      await new Promise<void>((resolve) => {
        const delay = until - performance.now();
        const timer = Number.isFinite(delay) ? setTimeout(resolve, Math.max(0, Math.ceil(delay))) : undefined;
        this.#notify = () => (clearTimeout(timer), resolve());
      });
    }
    const result = this.#results.shift();
    if (!result) return undefined;
    this.#dialing.delete(result.route);
    result.route.isDialing = false;
    if (result.error !== undefined) this.#nextStart = -Infinity; // the next dial starts at once
    return result;
  }

  /** startSoon lets the next dial start without a delay. */
  startSoon(): void {
    this.#nextStart = -Infinity;
  }

  /** cancelAll ends the remaining dials. */
  cancelAll(): void {
    this.#abort.abort(new Error("another node was found first"));
    for (const { route, connection } of this.#results) {
      route.isDialing = false;
      connection?.destroy();
    }
  }
}
