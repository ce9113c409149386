import { connect, createServer, type Server, type Socket } from "node:net";
import type { AddressInfo } from "node:net";

/** Proxy is an address of a node that a test can take away. */
export class Proxy {
  readonly #sockets = new Set<Socket>();
  #isHanging = false;

  private constructor(
    readonly address: string,
    readonly target: string,
    readonly server: Server,
  ) {}

  static async start(target: string): Promise<Proxy> {
    const server = createServer((socket) => proxy.#forward(socket));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const proxy = new Proxy(`127.0.0.1:${(server.address() as AddressInfo).port}`, target, server);
    return proxy;
  }

  get connections(): number {
    return this.#sockets.size / 2;
  }

  /** hang accepts connections and answers nothing. */
  hang(): void {
    this.#isHanging = true;
  }

  /** cut ends all connections, and refuses new ones. */
  async cut(): Promise<void> {
    const closed = new Promise((resolve) => this.server.close(resolve));
    this.drop();
    await closed;
  }

  /** drop ends all connections. New ones are accepted. */
  drop(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  #forward(socket: Socket): void {
    this.#track(socket);
    if (this.#isHanging) return;
    const [host, port] = this.target.split(":");
    const upstream = connect(Number(port), host);
    this.#track(upstream);
    socket.pipe(upstream).pipe(socket);
    socket.on("close", () => upstream.destroy());
    upstream.on("close", () => socket.destroy());
  }

  #track(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => this.#sockets.delete(socket));
  }
}
