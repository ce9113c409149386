/** Runs a job now and waits for its end. The exit code is 0 if the run succeeds. */
import { Fermata, isFermataError, json, Outcome } from "@fermata-io/fermata";
import { Worker } from "@fermata-io/fermata/worker";

const addresses = process.env["FERMATA_ADDRESS"] ?? "127.0.0.1:7070";
const fermata = await Fermata.connect({ addresses });
await fermata.jobs.create("invoice", { queue: "invoices", handler: "send-invoice", payload: json({ number: 17 }) });

// Elsewhere, most often: a worker.
const worker = new Worker({ addresses, queues: ["invoices"], slots: 4 });
worker.handle("send-invoice", (task) => ({ sent: task.json<{ number: number }>().number }));
const working = worker.run();

const run = await fermata.jobs.run("invoice", { backoff: "keep", wait: "1m" });
console.log(`${Outcome[run.outcome]} with output ${run.outputText}`);

try {
  await fermata.jobs.run("no-such-job");
} catch (error) {
  if (!isFermataError(error, "NOT_FOUND")) throw error;
  console.log(`no such job: ${error.message}`);
}

worker.stop();
await working;
await fermata.close();
process.exitCode = run.outcome === Outcome.SUCCEEDED ? 0 : 1;
