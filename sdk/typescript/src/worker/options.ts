import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { type DurationInput, toMilliseconds } from "../client/messages.js";
import { listAddresses, requireProtectedToken } from "../net/address.js";
import type { TlsOptions } from "../net/connection.js";
import type { TokenSource } from "../net/token.js";
import { findUnknownOption, type OptionNames } from "../options.js";
import { type Logger, stderrLogger } from "./log.js";

/** WorkerOptions configure a worker. Only addresses are required. */
export interface WorkerOptions {
  /** addresses are host:port of nodes. One that can be reached is enough: the worker learns the others from it. */
  addresses: string | readonly string[];
  /** namespace is that whose jobs the worker runs. Default "default". */
  namespace?: string;
  /** queues to serve, 1 to 64. Default "default". */
  queues?: readonly string[];
  /** slots is how many handlers run at once, 1 to 100,000. Default 16. */
  slots?: number;
  /** prefetch is how many attempts may wait here for a slot while handlers are short; 0: none. Default 1,000. */
  prefetch?: number;
  /** id identifies this process among the workers. Default: host, process and a random number. */
  id?: string;
  /** version and labels are shown by `fermata cluster workers`. */
  version?: string;
  labels?: Record<string, string>;
  /** drainTimeout is how long running handlers have after the signal of run was aborted. Default 30 s. */
  drainTimeout?: DurationInput;
  tls?: TlsOptions;
  /** token is the bearer token of each stream, or a function that returns the current one; see tokenFile. Without TLS
   * it is sent to loopback addresses only. */
  token?: TokenSource;
  /** logger receives the worker's log. It has no payloads and no texts of handlers' errors. Default: lines on stderr.
   * */
  logger?: Logger;
  /** catchStrayErrors makes an error that a handler leaves uncaught fail its attempt: a rejected promise that nobody
   * awaits, a callback that throws. Without it Node.js ends the process. Default true. */
  catchStrayErrors?: boolean;
}

const optionNames: OptionNames<WorkerOptions> = {
  addresses: true,
  namespace: true,
  queues: true,
  slots: true,
  prefetch: true,
  id: true,
  version: true,
  labels: true,
  drainTimeout: true,
  tls: true,
  token: true,
  logger: true,
  catchStrayErrors: true,
};

/** ResolvedOptions are options with their defaults. */
export type ResolvedOptions = Required<
  Omit<WorkerOptions, "tls" | "token" | "addresses" | "queues" | "drainTimeout">
> & {
  addresses: readonly string[];
  queues: string[];
  drainTimeoutMs: number;
  tls: TlsOptions | undefined;
  token: TokenSource | undefined;
};

/** resolveOptions fills in defaults. It throws for invalid options, with all of them. */
export function resolveOptions(o: WorkerOptions): ResolvedOptions {
  const unknown = findUnknownOption(o, optionNames);
  if (unknown !== undefined) throw new TypeError(`worker options: ${unknown}`);
  const faults: string[] = [];
  const resolved: ResolvedOptions = {
    addresses: valueOr([], faults, () => listAddresses(o.addresses)),
    namespace: o.namespace ?? "default",
    queues: valueOr(["default"], faults, () => listQueues(o.queues ?? ["default"])),
    slots: o.slots ?? 16,
    prefetch: o.prefetch ?? 1000,
    id: o.id ?? newWorkerId(),
    version: o.version ?? "",
    labels: o.labels ?? {},
    drainTimeoutMs: valueOr(0, faults, () => toMilliseconds(o.drainTimeout ?? "30s")),
    tls: o.tls,
    token: o.token,
    logger: o.logger ?? stderrLogger,
    catchStrayErrors: o.catchStrayErrors ?? true,
  };
  faults.push(...findFaults(resolved));
  if (faults.length > 0) throw new TypeError(`worker options: ${faults.join("; ")}`);
  return resolved;
}

function* findFaults(o: ResolvedOptions): Generator<string> {
  try {
    requireProtectedToken(o.addresses, o.tls !== undefined, o.token !== undefined);
  } catch (error) {
    yield (error as Error).message;
  }
  if (!/^[A-Za-z0-9._:~-]{1,128}$/.test(o.id)) yield `id ${JSON.stringify(o.id)}: want 1 to 128 of [A-Za-z0-9._:~-]`;
  if (!Number.isInteger(o.slots) || o.slots < 1 || o.slots > 100_000) yield `slots: ${o.slots}, want 1 to 100000`;
  if (!Number.isInteger(o.prefetch) || o.prefetch < 0 || o.prefetch > 2 ** 31 - 1) yield `prefetch: ${o.prefetch}`;
  if (o.drainTimeoutMs < 0) yield "drainTimeout is negative";
  if (o.queues.length < 1 || o.queues.length > 64) yield `${o.queues.length} queues, want 1 to 64`;
  for (const queue of o.queues) {
    if (!/^[A-Za-z0-9._-]{1,64}$/.test(queue)) yield `queue ${JSON.stringify(queue)}: want 1 to 64 of [A-Za-z0-9._-]`;
  }
}

function listQueues(input: unknown): string[] {
  if (Array.isArray(input)) return input.map(String);
  throw new TypeError(`queues: want an array of texts, such as ["mail"]`);
}

/** valueOr returns a value. If it cannot be read, it notes the fault and returns the other value. */
function valueOr<T>(other: T, faults: string[], read: () => T): T {
  try {
    return read();
  } catch (error) {
    faults.push((error as Error).message);
    return other;
  }
}

function newWorkerId(): string {
  const host =
    hostname()
      .slice(0, 80)
      .replace(/[^A-Za-z0-9.-]/g, "-")
      .replace(/^[.-]+/, "") || "worker";
  return `${host}-${process.pid}-${randomBytes(6).toString("hex")}`;
}
