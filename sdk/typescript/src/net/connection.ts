import { readFile } from "node:fs/promises";
import * as http2 from "node:http2";
import * as net from "node:net";
import * as tls from "node:tls";
import type { Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { type Endpoint, parseAddress } from "./address.js";
import { requireKnownOptions } from "../options.js";
import { maxMessageBytes } from "./stream.js";

/** TlsSettings configure TLS: those of node:tls for a client. `true` trusts the authorities that Node.js trusts. */
export type TlsSettings =
  | true
  | (tls.SecureContextOptions & {
      /** servername is the name that certificates have to be for, in place of the host of each address. */
      servername?: string;
      rejectUnauthorized?: boolean;
    });

/** TlsOptions are settings, or a function that returns them for each connection, such as tlsFiles. */
export type TlsOptions = TlsSettings | (() => TlsSettings | Promise<TlsSettings>);

/** TlsFiles are the paths of PEM files. */
export interface TlsFiles {
  /** ca has the authorities to trust. Default: those that Node.js trusts. */
  ca?: string;
  /** cert and key are this program's own certificate and its key. */
  cert?: string;
  key?: string;
  /** servername is as in TlsSettings. */
  servername?: string;
}

/** tlsFiles returns TLS options that read the files for each connection, so that renewed certificates are used. */
export function tlsFiles(files: TlsFiles): () => Promise<TlsSettings> {
  requireKnownOptions("tlsFiles", files, { ca: true, cert: true, key: true, servername: true });
  return async () => {
    const settings: tls.SecureContextOptions & { servername?: string } = {};
    for (const name of ["ca", "cert", "key"] as const) {
      const path = files[name];
      if (path !== undefined) settings[name] = await readFile(path);
    }
    if (files.servername !== undefined) settings.servername = files.servername;
    return settings;
  };
}

/** ConnectOptions configure one connection. */
export interface ConnectOptions {
  tls?: TlsOptions | undefined;
  /** verifyAs is the host that the certificate has to name. Default: the host of the address. */
  verifyAs?: string | undefined;
  timeoutMs: number;
  signal?: AbortSignal | undefined;
}

type SessionManager = NonNullable<Parameters<typeof createGrpcTransport>[0]["sessionManager"]>;

const pingInterval = 10_000;
const pingTimeout = 5000;
/** pingGrace lets the event loop read what came while it was blocked. */
const pingGrace = 250;
/** windowBytes is how many bytes a node may send before they are read. */
const windowBytes = 1 << 20;
/** maxSessionMemory is in MB. The default of Node.js ends a connection that carries many payloads at once. */
const maxSessionMemory = 1024;

/** Connection is one HTTP/2 connection to one node. */
export class Connection implements SessionManager {
  readonly authority: string;
  readonly transport: Transport;
  readonly closed: Promise<void>;
  /** lastContact is when something last arrived from the node, by the monotonic clock. */
  lastContact: number;
  readonly #session: http2.ClientHttp2Session;
  #open = true;
  #error: Error | undefined;
  #pings: NodeJS.Timeout;

  private constructor(
    readonly address: string,
    origin: string,
    session: http2.ClientHttp2Session,
  ) {
    this.authority = new URL(origin).origin;
    this.#session = session;
    this.lastContact = performance.now();
    this.transport = createGrpcTransport({
      baseUrl: this.authority,
      sessionManager: this,
      acceptCompression: [],
      readMaxBytes: maxMessageBytes,
    });
    session.on("error", (error: Error) => (this.#error ??= error));
    session.on("goaway", () => (this.#open = false));
    this.closed = new Promise((resolve) => session.once("close", resolve));
    void this.closed.then(() => {
      this.#open = false;
      clearInterval(this.#pings);
    });
    this.#pings = setInterval(() => this.#ping(), pingInterval);
    this.#pings.unref();
  }

  /** open connects, and waits until the node has sent its HTTP/2 settings: before that, only its system answered. */
  static async open(address: string, options: ConnectOptions): Promise<Connection> {
    const endpoint = parseAddress(address);
    const settings = typeof options.tls === "function" ? await options.tls() : options.tls;
    const origin = originOf(endpoint, settings !== undefined);
    options.signal?.throwIfAborted();
    const socket = openSocket(endpoint, settings, options.verifyAs);
    const session = http2.connect(origin, {
      createConnection: () => socket,
      maxSessionMemory,
      settings: { enablePush: false, initialWindowSize: windowBytes },
    });
    try {
      await readiness(session, socket, options);
      session.setLocalWindowSize(windowBytes);
      socket.setNoDelay?.(true);
      return new Connection(address, origin, session);
    } catch (error) {
      session.on("error", () => {});
      session.destroy();
      socket.destroy();
      throw new Error(`connect to ${address}: ${describeError(error)}`, { cause: error });
    }
  }

  /** isOpen reports whether new calls can be made. */
  get isOpen(): boolean {
    return this.#open && !this.#session.closed && !this.#session.destroyed;
  }

  /** error is why the connection has ended, if it did not end by itself. */
  get error(): Error | undefined {
    return this.#error;
  }

  request(
    method: string,
    path: string,
    headers: http2.OutgoingHttpHeaders,
    options: Omit<http2.ClientSessionRequestOptions, "signal">,
  ): Promise<http2.ClientHttp2Stream> {
    if (this.#session.closed || this.#session.destroyed) {
      return Promise.reject(this.#error ?? new Error(`the connection to ${this.address} is closed`));
    }
    return Promise.resolve(this.#session.request({ ...headers, ":method": method, ":path": path }, options));
  }

  /** openStream begins a call. It throws if the connection has ended. */
  openStream(path: string, headers: http2.OutgoingHttpHeaders): http2.ClientHttp2Stream {
    if (!this.isOpen) throw this.#error ?? new Error(`the connection to ${this.address} is closed`);
    return this.#session.request({ ...headers, ":method": "POST", ":path": path });
  }

  notifyResponseByteRead(): void {
    this.lastContact = performance.now();
  }

  /** close ends the connection when its calls have ended. */
  close(): void {
    this.#open = false;
    if (!this.#session.destroyed) this.#session.close();
  }

  /** destroy ends the connection and its calls at once. */
  destroy(error?: Error): void {
    this.#open = false;
    this.#error ??= error;
    if (!this.#session.destroyed) this.#session.destroy(error);
  }

  #ping(): void {
    if (this.#session.closed || this.#session.destroyed) return;
    let answered = false;
    this.#session.ping((error) => {
      answered = error === null;
      if (answered) this.lastContact = performance.now();
    });
    const sentAt = performance.now();
    const check = () => {
      if (!answered && this.lastContact < sentAt) this.destroy(new Error(`${this.address} does not answer pings`));
    };
    setTimeout(() => setTimeout(check, pingGrace).unref(), pingTimeout).unref();
  }
}

function originOf(endpoint: Endpoint, secure: boolean): string {
  const scheme = secure ? "https" : "http";
  if ("path" in endpoint) return `${scheme}://localhost`;
  const host = net.isIPv6(endpoint.host) ? `[${endpoint.host.replace(/%.*$/, "")}]` : endpoint.host;
  return `${scheme}://${host}:${endpoint.port}`;
}

function openSocket(endpoint: Endpoint, tlsSettings: TlsSettings | undefined, verifyAs?: string): net.Socket {
  if (tlsSettings === undefined) return net.connect(endpoint);
  const settings = tlsSettings === true ? {} : tlsSettings;
  const host = settings.servername ?? verifyAs ?? ("host" in endpoint ? endpoint.host : "localhost");
  return tls.connect({
    minVersion: "TLSv1.2",
    ...settings,
    ...endpoint,
    ALPNProtocols: ["h2"],
    servername: net.isIP(host) ? "" : host,
    checkServerIdentity: (_, certificate) => tls.checkServerIdentity(host, certificate),
  });
}

/** readiness resolves when the node has sent its settings, and rejects when the connection fails or takes too long. */
function readiness(session: http2.ClientHttp2Session, socket: net.Socket, options: ConnectOptions): Promise<void> {
  const { signal, timeoutMs } = options;
  let timer: NodeJS.Timeout | undefined;
  let abort: (() => void) | undefined;
  const ready = new Promise<void>((resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no connection within ${timeoutMs} ms`)), timeoutMs);
    abort = () => reject(signal?.reason as Error);
    signal?.addEventListener("abort", abort, { once: true });
    socket.once("error", reject);
    session.once("error", reject);
    session.once("close", () => reject(new Error("the connection was closed")));
    session.once("remoteSettings", () => resolve());
  });
  return ready.finally(() => {
    clearTimeout(timer);
    if (abort) signal?.removeEventListener("abort", abort);
  });
}

/** describeError returns the text of an error for a log line. */
export function describeError(error: unknown): string {
  if (error instanceof AggregateError && error.message === "") return error.errors.map(describeError).join("; ");
  if (error instanceof Error) return error.message || ((error as NodeJS.ErrnoException).code ?? error.name);
  return String(error);
}
