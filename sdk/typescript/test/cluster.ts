import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";

/** repository is the root of the repository, two directories above the package. */
export const repository = fileURLToPath(new URL("../../../../", import.meta.url));

/** Program is a process that a test has started, with what it printed. */
export class Program {
  readonly lines: string[] = [];
  readonly ended: Promise<number | null>;
  readonly #process: ChildProcess;

  constructor(command: string, args: string[], env: Record<string, string> = {}) {
    this.#process = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [this.#process.stdout!, this.#process.stderr!]) {
      createInterface({ input: stream }).on("line", (line) => this.lines.push(line));
    }
    this.ended = new Promise((resolve, reject) => {
      this.#process.once("error", reject);
      this.#process.once("close", (code) => resolve(code));
    });
  }

  signal(name: NodeJS.Signals): void {
    this.#process.kill(name);
  }

  /** stop ends the process, and waits for that. */
  async stop(): Promise<number | null> {
    this.signal("SIGTERM");
    return this.ended;
  }
}

/** eventually repeats a check until it returns something, or the test's time is over. */
export async function eventually<T>(
  what: string,
  check: () => T | Promise<T>,
  patience = 30_000,
): Promise<NonNullable<T>> {
  const until = performance.now() + patience;
  for (let pause = 5; ; pause = Math.min(pause * 2, 200)) {
    const found = await check();
    if (found) return found;
    if (performance.now() > until) throw new Error(`not in time: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

/** freePort returns a port that nothing listens on. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return (address as { port: number }).port;
}

/** startDev starts `scheduler dev`, and returns it with its address. */
export async function startDev(): Promise<{ address: string; program: Program }> {
  const address = `127.0.0.1:${await freePort()}`;
  const program = new Program(`${process.env["FERMATA_BIN"] ?? `${repository}bin`}/scheduler`, [
    "dev",
    "--plain",
    "--grpc-addr",
    address,
    "--http-addr",
    "127.0.0.1:0",
    "--rest-addr",
    "127.0.0.1:0",
  ]);
  return { address, program };
}
