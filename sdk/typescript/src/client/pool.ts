import type { DescMethodStreaming, DescMethodUnary, DescMessage, MessageInitShape } from "@bufbuild/protobuf";
import type { ContextValues, StreamResponse, Transport, UnaryResponse } from "@connectrpc/connect";
import { Connection, describeError, type TlsOptions } from "../net/connection.js";
import { readToken, type TokenSource } from "../net/token.js";
import { FermataError, toFermataError } from "./errors.js";

/** PoolOptions configure a pool. */
export interface PoolOptions {
  addresses: readonly string[];
  tls?: TlsOptions | undefined;
  token?: TokenSource | undefined;
}

type HeadersInit = ConstructorParameters<typeof Headers>[0];

const connectTimeout = 5000;
/** dialStagger is the delay between the starts of two dials. */
const dialStagger = 250;

/** Pool is a transport to any node: it keeps one connection, and takes another node when that one does not answer. */
export class Pool implements Transport {
  readonly #options: PoolOptions;
  #order: string[];
  #current: Promise<Connection> | undefined;
  readonly #closing = new AbortController();

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#order = shuffle([...new Set(options.addresses)]);
  }

  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    signal: AbortSignal | undefined,
    timeoutMs: number | undefined,
    header: HeadersInit | undefined,
    input: MessageInitShape<I>,
    contextValues?: ContextValues,
  ): Promise<UnaryResponse<I, O>> {
    return this.#use(signal, header, (transport, headers) =>
      transport.unary(method, signal, timeoutMs, headers, input, contextValues),
    );
  }

  async stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodStreaming<I, O>,
    signal: AbortSignal | undefined,
    timeoutMs: number | undefined,
    header: HeadersInit | undefined,
    input: AsyncIterable<MessageInitShape<I>>,
    contextValues?: ContextValues,
  ): Promise<StreamResponse<I, O>> {
    return this.#use(signal, header, async (transport, headers, connection) => {
      const response = await transport.stream(method, signal, timeoutMs, headers, input, contextValues);
      return { ...response, message: this.#watchStream(connection, response.message, signal) };
    });
  }

  /** connect opens a connection if there is none. */
  async connect(signal?: AbortSignal): Promise<Connection> {
    this.#closing.signal.throwIfAborted();
    const pending = (this.#current ??= this.#openAny());
    let connection: Connection;
    try {
      connection = await withAbort(pending, signal);
    } catch (error) {
      if (!signal?.aborted && this.#current === pending) this.#current = undefined;
      throw toFermataError(error, signal);
    }
    if (connection.isOpen) return connection;
    if (this.#current === pending) this.#current = undefined;
    return this.connect(signal);
  }

  /** close ends the connection when its calls have ended. */
  async close(): Promise<void> {
    this.#closing.abort(new Error("the client is closed"));
    const connection = await this.#current?.catch(() => undefined);
    connection?.close();
  }

  async #use<T>(
    signal: AbortSignal | undefined,
    header: HeadersInit | undefined,
    call: (transport: Transport, headers: Headers, connection: Connection) => Promise<T>,
  ): Promise<T> {
    const connection = await this.connect(signal);
    const headers = new Headers(header);
    if (this.#options.token !== undefined) {
      headers.set("authorization", `Bearer ${await currentToken(this.#options.token)}`);
    }
    try {
      return await call(connection.transport, headers, connection);
    } catch (error) {
      throw this.#leaveIfUnavailable(connection, error, signal);
    }
  }

  async *#watchStream<T>(connection: Connection, messages: AsyncIterable<T>, signal?: AbortSignal): AsyncGenerator<T> {
    try {
      yield* messages;
    } catch (error) {
      throw this.#leaveIfUnavailable(connection, error, signal);
    }
  }

  /** #leaveIfUnavailable makes the next call use another node if this one could not answer. */
  #leaveIfUnavailable(connection: Connection, thrown: unknown, signal?: AbortSignal): Error {
    const error = toFermataError(thrown, signal);
    if (error.code === "UNAVAILABLE") {
      void this.#current?.then(
        (current) => {
          if (current === connection) this.#current = undefined;
        },
        () => {},
      );
      this.#order = [...this.#order.filter((a) => a !== connection.address), connection.address];
      connection.close();
    }
    return error;
  }

  /** #openAny dials the addresses, the next one after a delay or a failure, and takes the first that is ready. */
  async #openAny(): Promise<Connection> {
    const others = new AbortController();
    const signal = AbortSignal.any([others.signal, this.#closing.signal]);
    const waiting = [...this.#order];
    const total = waiting.length;
    const dials: Promise<Connection>[] = [];
    const failures: unknown[] = [];
    try {
      return await new Promise<Connection>((resolve, reject) => {
        let timer: NodeJS.Timeout | undefined;
        const startNext = () => {
          clearTimeout(timer);
          const address = waiting.shift();
          if (address === undefined) return;
          timer = setTimeout(startNext, dialStagger);
          const dial = Connection.open(address, { tls: this.#options.tls, timeoutMs: connectTimeout, signal });
          dials.push(dial);
          dial.then(
            (connection) => (clearTimeout(timer), resolve(connection)),
            (error: unknown) => {
              failures.push(error);
              if (failures.length === total) reject(new AggregateError(failures));
              else startNext();
            },
          );
        };
        startNext();
      }).then((winner) => {
        for (const dial of dials)
          dial.then(
            (c) => c !== winner && c.destroy(),
            () => {},
          );
        return winner;
      });
    } finally {
      others.abort(new Error("another node answered first"));
    }
  }
}

async function currentToken(source: TokenSource): Promise<string> {
  try {
    return await readToken(source);
  } catch (error) {
    throw new FermataError("UNAUTHENTICATED", `failed to read the token: ${describeError(error)}`, { cause: error });
  }
}

function withAbort<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return promise;
  signal.throwIfAborted();
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason as Error);
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

function shuffle<T>(items: T[]): T[] {
  for (let i = items.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [items[i], items[j]] = [items[j]!, items[i]!];
  }
  return items;
}
