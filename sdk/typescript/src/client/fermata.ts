import { type Client, createClient } from "@connectrpc/connect";
import type { DescService } from "@bufbuild/protobuf";
import type { WhoAmIResponse } from "../gen/fermata/v1/access_service_pb.js";
import type { Event } from "../gen/fermata/v1/event_service_pb.js";
import { listAddresses, requireProtectedToken } from "../net/address.js";
import type { TlsOptions } from "../net/connection.js";
import type { TokenSource } from "../net/token.js";
import { type OptionNames, requireKnownOptions } from "../options.js";
import { type CallOptions, Calls } from "./calls.js";
import { type EventBatch, type EventFilter, watchBatches, watchEvents } from "./events.js";
import { Jobs } from "./jobs.js";
import { Pool } from "./pool.js";
import { Queues } from "./queues.js";

/** FermataOptions configure a client. */
export interface FermataOptions {
  /** addresses are host:port of nodes. Any node answers; the client takes another one when its node does not. */
  addresses: string | readonly string[];
  /** namespace is that of jobs that are named by id. Default "default". */
  namespace?: string;
  /** tls configures TLS. Default: plain text. */
  tls?: TlsOptions;
  /** token is the bearer token, or a function that returns the current one; see tokenFile. Without TLS it is sent to
   * loopback addresses only. */
  token?: TokenSource;
  /** attempts is the greatest number of attempts of a call, 1 to 20. Default 5. */
  attempts?: number;
}

const optionNames: OptionNames<FermataOptions> = {
  addresses: true,
  namespace: true,
  tls: true,
  token: true,
  attempts: true,
};

/** Fermata is a client of a cluster. */
export class Fermata {
  readonly jobs: Jobs;
  readonly queues: Queues;
  readonly #calls: Calls;

  private constructor(calls: Calls) {
    this.#calls = calls;
    this.jobs = new Jobs(calls);
    this.queues = new Queues(calls);
  }

  /** connect returns a client that is connected to a node. */
  static async connect(options: FermataOptions, call: { signal?: AbortSignal } = {}): Promise<Fermata> {
    const client = Fermata.create(options);
    try {
      await client.#calls.call(call, () => client.#calls.pool.connect(call.signal));
      return client;
    } catch (error) {
      await client.close();
      throw error;
    }
  }

  /** create returns a client that connects at its first call. */
  static create(options: FermataOptions): Fermata {
    requireKnownOptions("client options", options, optionNames);
    const addresses = listAddresses(options.addresses);
    requireProtectedToken(addresses, options.tls !== undefined, options.token !== undefined);
    const attempts = options.attempts ?? 5;
    if (!Number.isInteger(attempts) || attempts < 1 || attempts > 20) {
      throw new TypeError(`${attempts} attempts, want 1 to 20`);
    }
    const pool = new Pool({ addresses, tls: options.tls, token: options.token });
    return new Fermata(new Calls(pool, options.namespace ?? "default", attempts));
  }

  /** namespace is the namespace of jobs that are named by id. */
  get namespace(): string {
    return this.#calls.namespace;
  }

  /** inNamespace returns a client for another namespace that shares the connection. Closing either closes it. */
  inNamespace(namespace: string): Fermata {
    return new Fermata(new Calls(this.#calls.pool, namespace, this.#calls.attempts));
  }

  /** events returns events until the signal is aborted or the loop is left. A lost connection is resumed without gaps;
   * delivery is at least once. The error OUT_OF_RANGE means that events after the resume token are no longer kept. */
  events(filter: EventFilter = {}): AsyncGenerator<Event, void, undefined> {
    return watchEvents(this.#calls, filter);
  }

  /** eventBatches is as events, with the resume token of each batch. */
  eventBatches(filter: EventFilter = {}): AsyncGenerator<EventBatch, void, undefined> {
    return watchBatches(this.#calls, filter);
  }

  /** whoAmI returns the identity that the cluster assigns to the client, and its permissions. */
  whoAmI(options: CallOptions = {}): Promise<WhoAmIResponse> {
    return this.#calls.call(options, (attempt) => this.#calls.access.whoAmI({}, attempt));
  }

  /** service returns the generated client of a service, for methods that this package does not wrap. Its calls reach
   * any node, and are not retried. */
  service<S extends DescService>(service: S): Client<S> {
    return createClient(service, this.#calls.pool);
  }

  /** close ends the connection when its calls have ended. */
  close(): Promise<void> {
    return this.#calls.pool.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
