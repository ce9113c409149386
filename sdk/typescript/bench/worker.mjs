// One worker process of bench/compare.mjs: `worker.mjs fermata|bullmq ADDRESS COUNT SLOTS`. It begins when a line
// arrives on stdin, runs COUNT jobs whose handler does nothing, and prints a line of JSON.
import { once } from "node:events";

const [kind, address, countText, slotsText] = process.argv.slice(2);
const count = Number(countText);
const concurrency = Number(slotsText);
const lags = [];
let done = 0;
let first = 0;

/** begun notes the start of a handler, with when it was due. */
function begun(due) {
  if (first === 0) first = performance.now();
  lags.push(Date.now() - due);
}

async function runFermata() {
  const { Worker, silentLogger } = await import("../dist/worker/index.js");
  const catchStrayErrors = process.env.CATCH !== "0";
  const worker = new Worker({
    addresses: address,
    queues: ["bench"],
    slots: concurrency,
    logger: silentLogger,
    catchStrayErrors,
  });
  worker.handle("noop", (task) => {
    begun(task.dueTime.getTime());
    if (++done === count) setImmediate(() => worker.stop());
  });
  await worker.run(); // ends when all results are acknowledged
}

async function runBullMQ() {
  const { Worker } = await import("bullmq");
  const [host, port] = address.split(":");
  const connection = { host, port: Number(port), maxRetriesPerRequest: null };
  const worker = new Worker("bench", async (job) => begun(job.timestamp + job.opts.delay), { connection, concurrency });
  await new Promise((resolve) => worker.on("completed", () => ++done === count && resolve()));
  await worker.close();
}

process.stdout.write("ready\n");
await once(process.stdin, "data");
const cpu = process.cpuUsage();
await (kind === "fermata" ? runFermata() : runBullMQ());
const { user, system } = process.cpuUsage(cpu);
lags.sort((a, b) => a - b);
const quantile = (q) => lags[Math.min(lags.length - 1, Math.floor(q * lags.length))];
process.stdout.write(
  `${JSON.stringify({
    rate: Math.round((count / (performance.now() - first)) * 1000),
    cpu: Math.round(((user + system) / count) * 10) / 10,
    p50: quantile(0.5),
    p99: quantile(0.99),
    max: lags.at(-1),
  })}\n`,
);
process.exit();
