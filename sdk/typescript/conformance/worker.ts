/** The worker that `fermata worker check` tests: all settings come from the environment.
 *
 *     fermata worker check -- node sdk/typescript/build/conformance/worker.js
 *
 * Beside the handlers of the check it has `noop` and `hold`, for tests with real nodes. */
import { appendFileSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import {
  Permanent,
  RetryAfter,
  shutdownSignal,
  type Task,
  type TlsOptions,
  tokenFile,
  Worker,
} from "../src/worker/index.js";

const env = (name: string, fallback = "") => process.env[name] || fallback;

const worker = new Worker({
  addresses: env("FERMATA_ADDRESS", "127.0.0.1:7070"),
  namespace: env("FERMATA_NAMESPACE", "default"),
  queues: env("FERMATA_QUEUES", "default").split(","),
  slots: Number(env("FERMATA_SLOTS", "16")),
  prefetch: Number(env("FERMATA_PREFETCH", "0")),
  drainTimeout: env("FERMATA_DRAIN_TIMEOUT", "30s"),
  token: process.env["FERMATA_TOKEN_FILE"] ? tokenFile(process.env["FERMATA_TOKEN_FILE"]) : undefined,
  tls: tlsOptions(),
});

function tlsOptions(): TlsOptions | undefined {
  const read = (name: string) => (process.env[name] ? readFileSync(process.env[name]) : undefined);
  const [ca, cert, key] = [read("FERMATA_TLS_CA"), read("FERMATA_TLS_CERT"), read("FERMATA_TLS_KEY")];
  return ca || cert ? { ca, cert, key } : undefined;
}

const journal = process.env["FERMATA_CHECK_JOURNAL"];
const note = (line: string) => journal && appendFileSync(journal, line);

worker.use(async (task, next) => {
  note(`start ${task.token}\n`);
  try {
    return await next();
  } finally {
    note(`end ${task.token}\n`);
  }
});

async function pauseFor(task: Task): Promise<void> {
  try {
    await sleep(Number(task.text()), undefined, { signal: task.signal });
  } catch {
    throw task.signal.reason;
  }
}

worker.handle("check.succeed", (task) => task.bytes);
worker.handle("check.fail", (task) => {
  throw new Error(task.text());
});
worker.handle("check.permanent", (task) => {
  throw new Permanent(task.text());
});
worker.handle("check.retry_after", (task) => {
  throw new RetryAfter("later", Number(task.text()));
});
worker.handle("check.sleep", async (task) => {
  await pauseFor(task);
  return "slept";
});
worker.handle("check.panic", () => {
  throw { no: "error" };
});
worker.handle("noop", () => undefined);
worker.handle("hold", pauseFor);

await worker.run({ signal: shutdownSignal() });
