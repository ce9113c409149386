import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import {
  cron,
  every,
  Fermata,
  fileToken,
  FermataError,
  isFermataError,
  JobService,
  JobStatus_State,
  json,
  once,
  OverlapPolicy,
  toDate,
  tokenFile,
  toMilliseconds,
} from "../src/index.js";
import { eventually, freePort, startDev } from "./cluster.js";
import { Proxy } from "./proxy.js";

let dev: Awaited<ReturnType<typeof startDev>>;
let fermata: Fermata;

before(async () => {
  dev = await startDev();
  fermata = await Fermata.connect({ addresses: dev.address, attempts: 20 });
});

after(async () => {
  await fermata?.close();
  await dev?.program.stop();
});

const collect = async <T>(items: AsyncIterable<T>): Promise<T[]> => {
  const out: T[] = [];
  for await (const item of items) out.push(item);
  return out;
};

test("a job is created, read, changed, paused, resumed and deleted", async () => {
  const job = await fermata.jobs.create("life", {
    queue: "client",
    handler: "h",
    payload: json({ n: 1 }),
    schedule: { ...cron("0 7 * * MON", "Europe/Berlin"), jitter: "30s" },
    timeout: "1m30s",
    retryPolicy: { maxAttempts: 4, baseDelay: 1500 },
    overlapPolicy: OverlapPolicy.BUFFER_ONE,
    labels: { a: "b" },
    priority: 7,
  });
  assert.equal(job.name, "namespaces/default/jobs/life");
  assert.equal(toMilliseconds(job.timeout!), 90_000);
  assert.equal(toMilliseconds(job.retryPolicy!.baseDelay!), 1500);
  assert.equal(toMilliseconds(job.schedule!.jitter!), 30_000);
  const changed = await fermata.jobs.update(
    "life",
    { schedule: every("10m"), retryPolicy: { maxAttempts: 2 } },
    { etag: job.etag },
  );
  assert.equal(changed.schedule!.rule.case, "interval");
  assert.equal(changed.handler, "h");
  await assert.rejects(fermata.jobs.update("life", { priority: 1 }, { etag: job.etag }), { code: "ABORTED" });
  const one = await fermata.jobs.update(
    "life",
    { retryPolicy: { maxAttempts: 9 } },
    { fields: ["retry_policy.max_attempts"] },
  );
  assert.equal(one.retryPolicy!.maxAttempts, 9);
  assert.equal((await fermata.jobs.pause("life", { note: "why" })).status!.pauseNote, "why");
  assert.equal((await fermata.jobs.get("life")).status!.state, JobStatus_State.PAUSED);
  assert.equal((await fermata.jobs.resume("life")).status!.state, JobStatus_State.SCHEDULED);
  assert.match((await fermata.jobs.explain("life")).summary, /\w/);
  await fermata.jobs.delete("life");
  await assert.rejects(fermata.jobs.get("life"), { code: "NOT_FOUND" });
  await assert.rejects(fermata.jobs.delete("life"), { code: "NOT_FOUND" });
  await fermata.jobs.delete("life", { allowMissing: true });
});

test("creating the same job twice succeeds, another one with its id fails", async () => {
  const job = { queue: "client", handler: "h", schedule: once(new Date("2096-01-02T03:04:05.678Z")) };
  await fermata.jobs.create("twice", job);
  const again = await fermata.jobs.create("twice", job);
  assert.equal(toDate(again.status!.nextDueTime)!.toISOString(), "2096-01-02T03:04:05.678Z");
  await assert.rejects(fermata.jobs.create("twice", { ...job, handler: "other" }), { code: "ALREADY_EXISTS" });
});

test("an invalid job is refused with its fields", async () => {
  const error = await fermata.jobs
    .create("bad", { handler: "", schedule: cron("x"), timeout: "48h" })
    .catch((e: unknown) => e);
  assert.ok(isFermataError(error, "INVALID_ARGUMENT"));
  assert.deepEqual(error.violations.map((v) => v.field).sort(), [
    "job.handler",
    "job.schedule.cron.expressions[0]",
    "job.timeout",
  ]);
  assert.throws(() => fermata.jobs.create("typo", { handler: "h", tiemout: "1s" } as object), /no field "tiemout"/);
  assert.throws(() => fermata.jobs.create("typo", { handler: "h", timeout: "1 week" }), /not a duration/);
});

test("a misspelt option is refused before anything is sent, with the nearest one", async () => {
  const refused: [() => unknown, RegExp][] = [
    [() => fermata.jobs.run("life", { payloda: "x" } as never), /no option "payloda", did you mean "payload"\?/],
    [() => fermata.jobs.create("x", { handler: "h" }, { requestID: "1" } as never), /did you mean "requestId"\?/],
    [() => fermata.jobs.update("x", { priority: 1 }, { Etag: "1" } as never), /did you mean "etag"\?/],
    [() => fermata.jobs.get("x", { timeuot: 5 } as never), /did you mean "timeout"\?/],
    [() => collect(fermata.jobs.list({ queues: ["mail"] } as never)), /did you mean "queue"\?/],
    [() => collect(fermata.jobs.endedRuns({ outcome: [] } as never)), /did you mean "outcomes"\?/],
    [() => collect(fermata.jobs.upcoming({ excludeheld: true } as never)), /did you mean "excludeHeld"\?/],
    [() => collect(fermata.jobs.deadLetters({ lables: {} } as never)), /did you mean "labels"\?/],
    [() => collect(fermata.events({ kind: ["run.dead"] } as never)), /did you mean "kinds"\?/],
    [() => fermata.jobs.preview({ counts: 3 } as never), /did you mean "count"\?/],
    [() => fermata.queues.pause("q", { untill: new Date() } as never), /did you mean "until"\?/],
    [() => fermata.jobs.createMany([{ jobId: "x", job: { handler: "h" } } as never]), /no option "jobId"/],
    [() => fermata.jobs.create("x", { handlers: "h" } as never), /did you mean "handler"\?/],
  ];
  for (const [call, message] of refused) await assert.rejects(async () => call(), { name: "TypeError", message });
});

test("a payload is bytes or a text", async () => {
  const job = await fermata.jobs.create("payload-text", { queue: "nobody", handler: "h", payload: "Zoë" });
  assert.equal(Buffer.from(job.payload).toString(), "Zoë");
  const [many] = await fermata.jobs.createMany([{ job: { queue: "nobody", handler: "h", payload: "plain" } }]);
  assert.equal(Buffer.from(many!.job!.payload).toString(), "plain");
  const wrong = { payload: { tenant: 7 } } as never;
  assert.ok((await fermata.jobs.run("payload-text", { payload: "plain" })).name);
  await assert.rejects(fermata.jobs.run("payload-text", wrong), /payload: want a text, bytes, or json\(value\)/);
  assert.throws(() => fermata.jobs.create("x", wrong), /payload: want a text, bytes, or json\(value\)/);
});

test("many jobs are created, and listed page by page", async () => {
  const jobs = Array.from({ length: 1005 }, (_, i) => ({
    id: `many-${i}`,
    job: { queue: "many", handler: i === 3 ? "" : "h" },
  }));
  const results = await fermata.jobs.createMany(jobs, { namesOnly: true });
  assert.equal(results.length, 1005);
  assert.equal(results.filter((r) => r.job).length, 1004);
  assert.equal(results[3]!.error!.code, "INVALID_ARGUMENT");
  assert.equal(results[3]!.error!.violations.length, 1);
  const listed = await collect(fermata.jobs.list({ queue: "many", pageSize: 400 }));
  assert.equal(new Set(listed.map((j) => j.name)).size, 1004);
  const generated = await fermata.jobs.createMany([{ job: { handler: "h" } }, { job: { handler: "h" } }]);
  assert.equal(new Set(generated.map((r) => r.job?.name)).size, 2);
  assert.ok((await fermata.jobs.create(undefined, { handler: "h" })).name);
});

test("a manual run is requested once for one request id", async () => {
  await fermata.jobs.create("manual", { queue: "nobody", handler: "h" });
  const first = await fermata.jobs.run("manual", { requestId: "r1" });
  const again = await fermata.jobs.run("manual", { requestId: "r1" });
  assert.equal(first.name, again.name);
  assert.equal((await collect(fermata.jobs.runs("manual"))).length, 1);
  await assert.rejects(fermata.jobs.run("manual", { wait: 200 }), { code: "DEADLINE_EXCEEDED" });
  const aborted = new AbortController();
  const waiting = fermata.jobs.run("manual", { wait: true, signal: aborted.signal });
  setTimeout(() => aborted.abort(), 20);
  await assert.rejects(waiting, { code: "CANCELLED" });
  await fermata.jobs.cancelRun(first.name);
  assert.ok((await fermata.jobs.waitRun(first.name, { timeout: "30s" })).finishTime);
});

test("schedules are previewed and backfilled", async () => {
  const preview = await fermata.jobs.preview({
    schedule: cron(["0 7 * * *", "0 8 * * *"]),
    count: 3,
    after: new Date("2026-01-01T07:30:00Z"),
  });
  assert.deepEqual(
    preview.dueTimes.map((t) => toDate(t)!.toISOString().slice(5, 13)),
    ["01-01T08", "01-02T07", "01-02T08"],
  );
  await fermata.jobs.create("filled", { queue: "nobody", handler: "h", schedule: cron("0 * * * *") });
  const range = { from: new Date("2026-01-01T00:00:00Z"), to: new Date("2026-01-01T03:00:00Z") };
  const { id, job } = await fermata.jobs.backfill("filled", range);
  assert.deepEqual(
    job.status!.backfills.map((b) => b.id),
    [id],
  );
  assert.equal((await fermata.jobs.cancelBackfill("filled", id)).status!.backfills.length, 0);
});

test("queues are limited, paused and resumed", async () => {
  const set = await fermata.queues.set("limited", { maxConcurrency: 3, rate: 5 });
  assert.equal(set.maxConcurrency, 3);
  assert.equal((await fermata.queues.pause("limited", { until: new Date(Date.now() + 60_000) })).paused, true);
  const resumed = await fermata.queues.resume("limited");
  assert.equal(resumed.paused, false);
  assert.equal((await fermata.queues.get("limited")).maxConcurrency, 3);
});

test("generated services answer too", async () => {
  const presets = await fermata.service(JobService).listPresets({});
  assert.ok(presets.presets.length > 0);
  assert.ok(await fermata.whoAmI());
});

test("another node answers when one is lost", async () => {
  const proxies = [await Proxy.start(dev.address), await Proxy.start(dev.address)];
  const client = await Fermata.connect({
    addresses: [`127.0.0.1:${await freePort()}`, ...proxies.map((p) => p.address)],
  });
  await client.jobs.create("failover", { handler: "h" });
  const used = proxies.find((p) => p.connections > 0)!;
  await used.cut();
  assert.ok(await client.jobs.get("failover"));
  const other = proxies.find((p) => p !== used)!;
  other.drop();
  assert.ok(await client.jobs.get("failover"));
  await other.cut();
  await assert.rejects(client.jobs.get("failover", { timeout: 500 }), { code: "UNAVAILABLE" });
  await client.close();
});

test("a node that accepts connections and says nothing is passed over", async () => {
  const silent = await Proxy.start(dev.address);
  silent.hang();
  for (let i = 0; i < 4; i++) {
    // the order of addresses is random
    const client = await Fermata.connect({ addresses: [silent.address, dev.address] });
    assert.ok(await client.whoAmI());
    await client.close();
  }
  await silent.cut();
});

test("nobody answers", async () => {
  const addresses = `127.0.0.1:${await freePort()}`;
  await assert.rejects(
    Fermata.connect({ addresses, attempts: 2 }),
    (e: FermataError) => e.code === "UNAVAILABLE" && e.message.includes("ECONNREFUSED"),
  );
  assert.throws(() => Fermata.create({ addresses: "nonsense" }), /not host:port/);
  assert.throws(() => Fermata.create({ addresses: [] }), /no address/);
  assert.throws(() => Fermata.create({} as never), /addresses is missing: want host:port/);
  assert.throws(() => Fermata.create(undefined as never), /client options: want an object/);
  assert.throws(() => Fermata.create({ addresses: 7070 } as never), /addresses: want a text or an array/);
  assert.throws(() => Fermata.create({ address: "x:1" } as never), /no option "address", did you mean "addresses"\?/);
  await assert.rejects(Fermata.connect({} as never), /addresses is missing/);
  assert.throws(() => Fermata.create({ addresses: "example.org:7070", token: "t" }), /needs TLS/);
});

test("events are resumed after a lost connection, without gaps and duplicates", async () => {
  const proxy = await Proxy.start(dev.address);
  const client = await Fermata.connect({ addresses: proxy.address });
  const stop = new AbortController();
  const events = client.events({
    kinds: ["job.created"],
    jobs: Array.from({ length: 6 }, (_, i) => `event-${i}`),
    since: new Date(Date.now() - 1000),
    signal: stop.signal,
  });
  const seen: string[] = [];
  for (let i = 0; i < 6; i++) {
    await fermata.jobs.create(`event-${i}`, { handler: "h" });
    const next = await events.next();
    assert.ok(!next.done);
    seen.push(next.value.job.split("/").at(-1)!);
    if (i % 2 === 0) proxy.drop();
  }
  assert.deepEqual(seen, ["event-0", "event-1", "event-2", "event-3", "event-4", "event-5"]);
  stop.abort();
  await assert.rejects(events.next(), { code: "CANCELLED" });
  await client.close();
  await proxy.cut();
});

test("the place among events is stored after their handling", async () => {
  const directory = await mkdtemp(join(tmpdir(), "fermata-place-"));
  const resume = fileToken(join(directory, "place"));
  const filter = { kinds: ["job.created"], jobs: ["place-0", "place-1"], since: new Date(Date.now() - 1000), resume };
  await fermata.jobs.create("place-0", { handler: "h" });
  const cutOff = fermata.events(filter);
  assert.equal((await cutOff.next()).value!.job, "namespaces/default/jobs/place-0");
  await cutOff.return(undefined); // its handling was cut off
  const again = fermata.events(filter);
  assert.equal((await again.next()).value!.job, "namespaces/default/jobs/place-0");
  const second = again.next();
  await eventually("a place", () => resume.read());
  await fermata.jobs.create("place-1", { handler: "h" });
  assert.equal((await second).value!.job, "namespaces/default/jobs/place-1");
  await again.return(undefined);
  assert.deepEqual(
    (await collect(fermata.events({ ...filter, stopAtEnd: true }))).map((e) => e.job.split("/").at(-1)),
    ["place-1"],
  );
  await rm(directory, { recursive: true });
});

test("a token file is read again", async () => {
  const directory = await mkdtemp(join(tmpdir(), "fermata-token-"));
  const path = join(directory, "token");
  const token = tokenFile(path);
  await assert.rejects(token(), { code: "ENOENT" });
  await writeFile(path, "one\n");
  assert.equal(await token(), "one");
  await writeFile(path, "two\n");
  await eventually("the new token", async () => (await token()) === "two");
  await rm(directory, { recursive: true });
  assert.equal(await token(), "two");
});
