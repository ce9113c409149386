// Compares workers of Fermata and BullMQ that run jobs whose handler does nothing, in interleaved rounds:
//
//     npm install --prefix sdk/typescript/bench && scripts/typescript.sh --check   # once
//     node sdk/typescript/bench/compare.mjs drain [ROUNDS] [COUNT] [SLOTS]
//     node sdk/typescript/bench/compare.mjs lag [ROUNDS] [SECONDS]
//
// drain: a backlog of due jobs, jobs/s from the first start until all are settled, and processor time of the worker
// process. lag: 500 jobs/s, due at even intervals; from when a job was due until its handler starts, in ms. Each round
// has a redis-server of its own, with an append-only file that is synced every second.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { once as onceAt, Fermata } from "../dist/index.js";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const binaries = process.env.FERMATA_BIN ?? join(root, "bin");
const [mode = "drain", roundsText = "3", sizeText, slotsText = "100"] = process.argv.slice(2);
const rounds = Number(roundsText);
const slots = Number(slotsText);
const rate = 500;
const count = mode === "drain" ? Number(sizeText ?? 20_000) : rate * Number(sizeText ?? 10);

async function freePorts(n) {
  const servers = await Promise.all(
    Array.from({ length: n }, async () => {
      const server = createServer().listen(0, "127.0.0.1");
      await once(server, "listening");
      return server;
    }),
  );
  const ports = servers.map((s) => s.address().port);
  await Promise.all(servers.map((s) => new Promise((resolve) => s.close(resolve))));
  return ports;
}

const processes = new Set();

function start(command, args, options = {}) {
  const child = spawn(command, args, {
    stdio: ["pipe", "pipe", process.env.VERBOSE ? "inherit" : "ignore"],
    ...options,
  });
  processes.add(child);
  child.once("exit", () => processes.delete(child));
  return child;
}

async function stop(child) {
  if (child.exitCode !== null) return;
  child.kill("SIGTERM");
  await once(child, "exit");
}

async function startRedis(port, dir) {
  const child = start("redis-server", [
    "--port",
    String(port),
    "--bind",
    "127.0.0.1",
    "--dir",
    dir,
    "--save",
    "",
    "--appendonly",
    "yes",
    "--appendfsync",
    "everysec",
  ]);
  for await (const line of createInterface({ input: child.stdout })) if (line.includes("Ready to accept")) break;
  child.stdout.resume();
  return child;
}

/** schedule returns when each job is due: in the past for a backlog, else at even intervals from a moment on. */
function schedule(begin) {
  return (i) => (mode === "drain" ? begin - 1000 : begin + Math.round((i * 1000) / rate));
}

async function runWorker(kind, address, register) {
  const worker = start(process.execPath, [
    join(root, "sdk/typescript/bench/worker.mjs"),
    kind,
    address,
    String(count),
    String(slots),
  ]);
  const lines = createInterface({ input: worker.stdout })[Symbol.asyncIterator]();
  await lines.next(); // ready
  if (mode === "drain") await register(Date.now());
  worker.stdin.write("go\n");
  if (mode === "lag") await register(Date.now() + 8000);
  const result = JSON.parse((await lines.next()).value);
  if (worker.exitCode === null) await once(worker, "exit");
  return result;
}

async function fermata(redisPort) {
  const [grpc, http, peer, gossip] = await freePorts(4);
  const at = (port) => `127.0.0.1:${port}`;
  const node = start(join(binaries, "scheduler"), [
    "--name",
    "a",
    "--redis-url",
    `redis://127.0.0.1:${redisPort}/0`,
    "--grpc-addr",
    at(grpc),
    "--http-addr",
    at(http),
    "--peer-addr",
    at(peer),
    "--gossip-addr",
    at(gossip),
  ]);
  node.stdout.resume();
  const client = await Fermata.connect({ addresses: at(grpc), attempts: 20 });
  const result = await runWorker("fermata", at(grpc), async (begin) => {
    const due = schedule(begin);
    const jobs = Array.from({ length: count }, (_, i) => ({
      job: { queue: "bench", handler: "noop", schedule: onceAt(new Date(due(i))), historyLimit: 0 },
    }));
    const results = await client.jobs.createMany(jobs, { namesOnly: true, timeout: "2m" });
    const failed = results.find((r) => r.error);
    if (failed) throw failed.error;
  });
  await client.close();
  await stop(node);
  return result;
}

async function bullmq(redisPort) {
  const { Queue } = await import("bullmq");
  const queue = new Queue("bench", { connection: { host: "127.0.0.1", port: redisPort } });
  const result = await runWorker("bullmq", `127.0.0.1:${redisPort}`, async (begin) => {
    const due = schedule(begin);
    for (let i = 0; i < count; i += 1000) {
      const now = Date.now();
      await queue.addBulk(
        Array.from({ length: Math.min(1000, count - i) }, (_, k) => ({
          name: "noop",
          data: {},
          opts: { removeOnComplete: true, timestamp: now, delay: Math.max(0, due(i + k) - now) },
        })),
      );
    }
  });
  await queue.close();
  return result;
}

async function round(run) {
  const dir = mkdtempSync(join(tmpdir(), "fermata-bench-"));
  const [port] = await freePorts(1);
  const redis = await startRedis(port, dir);
  try {
    return await run(port);
  } finally {
    await stop(redis);
    rmSync(dir, { recursive: true, force: true });
  }
}

process.on("exit", () => processes.forEach((child) => child.kill("SIGKILL")));
const only = process.env.ONLY?.split(",");
for (let i = 1; i <= rounds; i++) {
  const results = {};
  for (const [name, run] of Object.entries({ fermata, bullmq })) {
    if (only && !only.includes(name)) continue;
    results[name] = await round(run);
    console.log(`round ${i} ${name}: ${JSON.stringify(results[name])}`);
  }
  if (results.fermata && results.bullmq) {
    const key = mode === "drain" ? "rate" : "p99";
    console.log(`round ${i}: fermata / bullmq = ${(results.fermata[key] / results.bullmq[key]).toFixed(2)} (${key})`);
  }
}
process.exit();
