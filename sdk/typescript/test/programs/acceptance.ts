/** The acceptance worker in TypeScript (internal/test/acceptance): it is configured like the one in Go, and appends the
 * same records to its file. */
import { openSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { shutdownSignal, type Task, Worker } from "../../src/worker/index.js";

interface Config {
  id: string;
  addresses: string[];
  queues: string[];
  slots: number;
  evidence: string;
}

/** Behaviour is the payload, without some fields that the worker in Go knows: those are errors here. */
interface Behaviour {
  sleep?: number; // nanoseconds
  fail?: boolean;
  fail_attempts?: number;
}

const config = JSON.parse(process.env["FERMATA_ACCEPTANCE_CONFIG"]!) as Config;
const evidence = openSync(config.evidence, "a", 0o600);

let offset = 0n; // of the system clock from the monotonic one, in nanoseconds

/** systemTime returns nanoseconds since 1970. The system clock shows milliseconds only. The monotonic clock adds the
 * rest, as long as the two agree on the millisecond. */
function systemTime(): bigint {
  const from = BigInt(Date.now()) * 1_000_000n;
  const monotonic = process.hrtime.bigint();
  const last = BigInt(Date.now()) * 1_000_000n + 999_999n;
  if (monotonic + offset < from) offset = from - monotonic;
  if (monotonic + offset > last) offset = last - monotonic;
  return monotonic + offset;
}

/** record appends an event by one write, so that a killed process leaves whole lines. */
function record(kind: "start" | "told" | "end", task: Task, outcome = ""): void {
  const fields = JSON.stringify({
    kind,
    worker: config.id,
    job: task.job,
    run: task.run,
    attempt: task.attempt,
    nominal: task.nominalTime?.getTime() ?? 0,
    due: task.dueTime?.getTime() ?? 0,
    outcome,
  });
  writeSync(evidence, `{"at":${systemTime()},"token":${task.token},${fields.slice(1)}\n`);
}

async function behave(task: Task): Promise<void> {
  const { sleep: nanoseconds = 0, fail = false, fail_attempts = 0, ...others } = task.json<Behaviour>();
  if (Object.keys(others).length > 0) throw new Error(`unknown fields: ${Object.keys(others).join(", ")}`);
  if (nanoseconds > 0) await sleep(nanoseconds / 1e6, undefined, { signal: task.signal });
  if (fail || task.attempt <= fail_attempts) throw new Error("the payload demands a failure");
}

const worker = new Worker({
  addresses: config.addresses,
  queues: config.queues,
  slots: config.slots,
  id: config.id,
  drainTimeout: "10s",
});
worker.handle("acceptance", async (task) => {
  record("start", task);
  const noteAbort = () => record("told", task);
  task.signal.addEventListener("abort", noteAbort, { once: true });
  try {
    await behave(task);
    record("end", task, "ok");
  } catch (error) {
    record("end", task, task.signal.aborted ? "cancelled" : "failed");
    throw error;
  } finally {
    task.signal.removeEventListener("abort", noteAbort);
  }
});

// systemTime is late by up to a millisecond until it has been called just after the system clock's next millisecond.
for (const until = Date.now() + 3; Date.now() < until; ) systemTime();
console.error(JSON.stringify({ msg: "acceptance worker is up" }));
await worker.run({ signal: shutdownSignal() });
