/** Sends digests: runs the jobs of the queue mail whose handler is send-digest, as examples/worker does in Go.
 *
 *     node build/examples/digest-worker.js
 *     fermata jobs create digest --every 1m --queue mail --handler send-digest --payload ada@example.com */
import { Permanent, Worker } from "@fermata-io/fermata/worker";

const worker = new Worker({
  addresses: process.env["FERMATA_ADDRESS"] ?? "127.0.0.1:7070", // of any nodes
  queues: (process.env["FERMATA_QUEUES"] ?? "mail").split(","),
  slots: Number(process.env["FERMATA_SLOTS"] ?? 20),
});

// A handler is called once for each attempt. An error fails the attempt, and the job's policy decides what follows.
worker.handle("send-digest", async (task) => {
  const account = task.text();
  if (account === "") throw new Permanent("no such account"); // another attempt would fail as well
  await send(account, task.token, task.signal);
  return `sent to ${account}`; // kept with the run
});

/** send stands for your own code. The token only grows: a store can refuse what an older attempt writes. */
async function send(account: string, token: bigint, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  console.log(`digest sent to ${account}, token ${token}`);
}

await worker.runUntilShutdown(); // finishes what runs
