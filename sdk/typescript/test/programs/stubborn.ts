/** A worker with a handler that does not return, whatever its signal says. */
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "../../src/worker/index.js";

const worker = new Worker({ addresses: process.env["FERMATA_ADDRESS"]!, queues: ["stubborn"], drainTimeout: 10 });
worker.handle("stubborn", async () => {
  console.log("started");
  await sleep(600_000);
});
await worker.runUntilShutdown();
