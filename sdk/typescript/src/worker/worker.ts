import { maxTimerMs } from "../client/messages.js";
import { describeError } from "../net/connection.js";
import { requireKnownOptions } from "../options.js";
import { DrainTimeout } from "./errors.js";
import { Link } from "./link.js";
import { resolveOptions, type ResolvedOptions, type WorkerOptions } from "./options.js";
import { Runtime } from "./runtime.js";
import { watchStrays } from "./strays.js";
import type { Handler, Middleware } from "./task.js";
import { Trigger } from "./trigger.js";

/** stopGrace is how long handlers have to return after they were told to stop, in milliseconds. */
const stopGrace = 5000;

/** Worker runs handlers for the attempts that nodes lease to it. */
export class Worker {
  readonly #options: ResolvedOptions;
  readonly #handlers = new Map<string, Handler>();
  readonly #middleware: Middleware[] = [];
  readonly #stopping = new Trigger<void>();
  readonly #aborted = new Trigger<void>();
  #runtime: Runtime | undefined;

  /** The constructor throws for invalid options. */
  constructor(options: WorkerOptions) {
    this.#options = resolveOptions(options);
  }

  /** id is the worker's id, as nodes list it. */
  get id(): string {
    return this.#options.id;
  }

  /** use adds middleware around every handler, the first one outermost. It throws after the first call of handle, so
   * that no handler is left out by mistake. */
  use(...middleware: Middleware[]): this {
    if (this.#handlers.size > 0) throw new Error("use after handle");
    this.#middleware.push(...middleware);
    return this;
  }

  /** handle registers the handler for jobs that name it. */
  handle(name: string, handler: Handler): this {
    if (name === "") throw new Error("a handler needs a name");
    if (typeof handler !== "function") throw new TypeError(`handler ${JSON.stringify(name)} is not a function`);
    if (this.#handlers.has(name)) throw new Error(`handler ${JSON.stringify(name)} is registered twice`);
    if (this.#runtime) throw new Error("handle after run");
    this.#handlers.set(name, wrapHandler(handler, this.#middleware));
    return this;
  }

  /** run runs attempts until the signal is aborted or stop is called, then drains: it takes no further attempts, and
   * waits up to drainTimeout for running handlers and for the acknowledgement of their results. After that, or when
   * abort is called, it ends the signals of the remaining handlers and gives them 5 s to return. Their attempts are
   * leased again, and run rejects with DrainTimeout. It reconnects for as long as necessary. */
  async run(options: { signal?: AbortSignal } = {}): Promise<void> {
    requireKnownOptions("run", options, { signal: true });
    if (this.#handlers.size === 0) throw new Error("no handler is registered");
    if (this.#runtime) throw new Error("run was called before");
    const runtime = (this.#runtime = new Runtime(this.#options, this.#handlers));
    const unwatch = this.#options.catchStrayErrors ? watchStrays() : () => {};
    const keepAlive = setInterval(() => {}, 2 ** 30); // until the worker has ended, whatever the network does
    const stop = () => this.#stopping.fire();
    options.signal?.addEventListener("abort", stop, { once: true });
    if (options.signal?.aborted) stop();
    const link = new Link(runtime);
    const linked = link.run();
    try {
      await Promise.race([this.#stopping.fired, this.#aborted.fired, linked]);
      await this.#drain(runtime);
      link.stop();
      await linked;
    } finally {
      runtime.stop();
      clearInterval(keepAlive);
      unwatch();
      options.signal?.removeEventListener("abort", stop);
    }
    const cut = runtime.attemptCount + runtime.cutOffCount;
    if (cut > 0) throw new DrainTimeout(cut);
    this.#options.logger.info("drained", { worker: this.id });
  }

  /** runUntilShutdown is run until SIGTERM or SIGINT, for the end of a program. If attempts were cut off, it logs that
   * and ends the process with code 1, because their handlers may go on. A second SIGINT ends the process at once. */
  async runUntilShutdown(): Promise<void> {
    try {
      await this.run({ signal: shutdownSignal() });
    } catch (error) {
      if (!(error instanceof DrainTimeout)) throw error;
      this.#options.logger.error(error.message, { worker: this.id });
      process.exit(1);
    }
  }

  /** stop makes run drain. It may be called at any time and more than once. */
  stop(): void {
    this.#stopping.fire();
  }

  /** abort makes run end the handlers at once. */
  abort(): void {
    this.#aborted.fire();
  }

  /** notReadyReason is undefined while the worker has a stream to a node and takes attempts. Otherwise it is the
   * reason. */
  get notReadyReason(): string | undefined {
    if (!this.#runtime) return "not running";
    if (this.#runtime.isDraining) return "draining";
    return this.#runtime.session ? undefined : describeError(this.#runtime.linkError);
  }

  async #drain(runtime: Runtime): Promise<void> {
    const { logger, drainTimeoutMs } = this.#options;
    logger.info("draining", { worker: this.id, running: runtime.slotsTaken, timeout_ms: drainTimeoutMs });
    runtime.beginDrain();
    await firstOf(drainTimeoutMs, runtime.idle.fired, this.#aborted.fired);
    if (runtime.idle.hasFired) return;
    runtime.haltHandlers();
    await firstOf(stopGrace, runtime.idle.fired);
  }
}

/** firstOf waits for the first of some promises, or for a time. */
async function firstOf(ms: number, ...promises: Promise<void>[]): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, Math.min(ms, maxTimerMs))));
  await Promise.race([late, ...promises]);
  clearTimeout(timer);
}

function wrapHandler(handler: Handler, middleware: readonly Middleware[]): Handler {
  return middleware.reduceRight<Handler>((inner, around) => (task) => around(task, async () => inner(task)), handler);
}

/** shutdownSignal returns a signal that SIGTERM and SIGINT abort, for run. A second SIGINT ends the process at once. */
export function shutdownSignal(): AbortSignal {
  const controller = new AbortController();
  for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => controller.abort(new Error(name)));
  return controller.signal;
}
