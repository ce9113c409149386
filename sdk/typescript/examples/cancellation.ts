/** A long handler ends soon after its attempt has to end: timeout, cancelled run, lost lease, or the worker stops. */
import { setTimeout as sleep } from "node:timers/promises";
import { AttemptEnded, type Task, Worker } from "@fermata-io/fermata/worker";

const worker = new Worker({
  addresses: process.env["FERMATA_ADDRESS"] ?? "127.0.0.1:7070",
  queues: ["imports"],
  drainTimeout: "5s",
});

worker.handle("import", async (task) => {
  let rows = 0;
  try {
    for (; rows < 1000; rows++) await importRow(rows, task);
  } catch (error) {
    const ended: unknown = task.signal.reason;
    if (!(ended instanceof AttemptEnded)) throw error;
    console.log(`stopped after ${rows} rows: ${ended.kind}`);
    if (ended.kind === "cancelled") await undoImport(rows);
    throw ended; // after "lease-lost", write nothing more: another worker may run the next attempt
  }
  return { rows };
});

async function importRow(_row: number, task: Task): Promise<void> {
  await sleep(50, undefined, { signal: task.signal });
}

async function undoImport(rows: number): Promise<void> {
  console.log(`removed ${rows} rows`);
}

await worker.runUntilShutdown();
