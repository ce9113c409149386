import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { mock, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { FermataError } from "../src/client/errors.js";
import { durationOf, toMilliseconds } from "../src/client/messages.js";
import { delayAfter } from "../src/client/retry.js";
import { LeaseSchema, Result_Outcome, type WorkRequest } from "../src/gen/fermata/v1/worker_service_pb.js";
import { isAdvertisable, isLoopback, parseAddress } from "../src/net/address.js";
import { tokenFile } from "../src/net/token.js";
import { task } from "../src/testing.js";
import { Attempt, Phase } from "../src/worker/attempt.js";
import { TaskContext } from "../src/worker/context.js";
import { Heartbeats } from "../src/worker/heartbeats.js";
import { FailurePacer, formatLine } from "../src/worker/log.js";
import { errorName, errorText } from "../src/worker/outcome.js";
import { Outbox } from "../src/worker/outbox.js";
import { clipText, outputBytes } from "../src/worker/output.js";
import { Routes } from "../src/worker/routes.js";

test("durations", () => {
  for (const [text, ms] of Object.entries({
    "90s": 90_000,
    "1h30m": 5_400_000,
    "1.5s": 1500,
    "250ms": 250,
    "2d": 172_800_000,
  })) {
    assert.equal(toMilliseconds(text), ms, text);
  }
  for (const text of ["", "1", "s", "1 s", "-1s", "1s ", "1..5s", "1w"])
    assert.throws(() => toMilliseconds(text), TypeError, text);
  assert.throws(() => toMilliseconds(NaN), TypeError);
  for (const ms of [0, 1, 1.5, 0.000001, 999.9999999, 1599.949, 123_456_789.0001, -1.5, 1e300]) {
    const d = durationOf(ms);
    assert.ok(Number.isInteger(d.nanos) && Math.abs(d.nanos) < 1e9, `${ms}: ${d.nanos}`);
    if (ms < 1e300) assert.ok(Math.abs(toMilliseconds(d) - ms) < 1e-6, `${ms}`);
  }
});

test("addresses", () => {
  assert.deepEqual(parseAddress("a:1"), { host: "a", port: 1 });
  assert.deepEqual(parseAddress("[::1]:7070"), { host: "::1", port: 7070 });
  assert.deepEqual(parseAddress("dns:///a.example:7070"), { host: "a.example", port: 7070 });
  assert.deepEqual(parseAddress("unix:///run/x"), { path: "/run/x" });
  for (const bad of ["", "a", ":1", "a:0", "a:65536", "::1:7070", "dns://server/a:1", "a:1x"])
    assert.throws(() => parseAddress(bad), TypeError, bad);
  for (const local of ["localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "unix:/x"])
    assert.ok(isLoopback(local), local);
  for (const other of ["127.0.0.1.example.org:1", "example.org:1", "10.0.0.1:1", "localhost.example:1", "127x:1"])
    assert.ok(!isLoopback(other), other);
  for (const good of ["a:1", "a_b.c-d:7070", "[::1]:1"]) assert.ok(isAdvertisable(good), good);
  for (const bad of ["unix:/x", "dns:///a:1", "a:01", "a b:1", "a/b:1", `${"a".repeat(300)}:1`])
    assert.ok(!isAdvertisable(bad), bad);
});

test("retries", () => {
  const delay = (...args: ConstructorParameters<typeof FermataError>) => delayAfter(new FermataError(...args), 1);
  assert.ok(delay("UNAVAILABLE", "x")! <= 100);
  assert.equal(delay("ABORTED", "x"), undefined);
  assert.equal(delay("INVALID_ARGUMENT", "x", { retryAfterMs: 5 }), undefined);
  assert.ok(delay("ABORTED", "x", { retryAfterMs: 100 })! >= 100);
  assert.ok(delay("RESOURCE_EXHAUSTED", "x", { retryAfterMs: 1e9 })! <= 12_500);
  assert.equal(delay("RESOURCE_EXHAUSTED", "x"), undefined);
  assert.ok(delayAfter(new FermataError("UNAVAILABLE", "x"), 50)! <= 2000);
});

test("texts are cut between characters", () => {
  assert.equal(clipText("aé", 3), "aé");
  assert.equal(clipText("aéé", 4), "aé");
  assert.equal(clipText("😀😀", 7), "😀");
  assert.equal(clipText("a\ud83d", 10), "a\ufffd");
});

test("errors have a text and a short stack", () => {
  function thrower(): never {
    throw new TypeError("bad");
  }
  let caught: unknown;
  try {
    thrower();
  } catch (error) {
    caught = error;
  }
  assert.match(errorText(caught), /^TypeError: bad at thrower \(units\.test\.js:\d+\) < /);
  const deep = (n: number): never => (n === 0 ? thrower() : deep(n - 1));
  try {
    deep(50);
  } catch (error) {
    caught = error;
  }
  assert.ok(Buffer.byteLength(errorText(caught)) <= 512);
  assert.equal(errorText(""), "thrown: ");
  assert.match(errorText(new Error("")), /^Error at /);
  assert.equal(errorName(new RangeError("x")), "RangeError");
  assert.equal(errorName(5), "number");
  assert.equal(errorName(Object.assign(new (class extends Error {})("x"))), "Error");
});

test("an output is a copy, and is cut", () => {
  const buffer = Buffer.alloc(5000, 1);
  const kept = outputBytes(buffer)!;
  buffer.fill(2);
  assert.deepEqual([kept.length, kept[0], kept[4095]], [4096, 1, 1]);
  const texts = ["a", "b"].map((text) => outputBytes(text)!);
  assert.deepEqual(texts.map((t) => Buffer.from(t).toString()), ["a", "b"]);
  assert.equal(texts[0]!.buffer.byteLength, 1); // and no more memory than that
  assert.equal(outputBytes("é".repeat(10_000))!.length, 4096);
  assert.throws(() => outputBytes(1n), TypeError);
});

test("the last token stays in use while its file has none", async () => {
  const dir = await mkdtemp(join(tmpdir(), "fermata-token-"));
  const path = join(dir, "token");
  const token = tokenFile(path);
  await assert.rejects(token(), { code: "ENOENT" });
  let now = performance.now();
  const clock = mock.method(performance, "now", () => (now += 1000));
  const seen: string[] = [];
  for (const text of ["one\n", "", "half a\ntoken", "two"]) {
    await writeFile(path, text);
    seen.push(await token());
  }
  await rm(dir, { recursive: true });
  seen.push(await token());
  clock.mock.restore();
  assert.deepEqual(seen, ["one", "one", "one", "two", "two"]);
});

test("log lines have no line breaks", () => {
  const line = formatLine("INFO", "text", { a: "b", c: "d e", f: 'g"\n', n: 1, list: ["x", "y"] });
  assert.match(line, /^\d{4}-\S+Z INFO text a=b c="d e" f="g\\"\\n" n=1 list=x,y$/);
  const pacer = new FailurePacer();
  assert.deepEqual(
    [0, 1, 4999, 5000, 14_999, 15_000].map((t) => pacer.isDue(t)),
    [true, false, false, true, false, true],
  );
});

test("a task context keeps the first cause", async () => {
  const context = new TaskContext();
  context.end("cancelled");
  context.end("timeout");
  assert.equal((context.signal.reason as { kind: string }).kind, "cancelled");
  const late = new TaskContext();
  late.startTimeout(performance.now(), 1);
  await sleep(5);
  late.end("lease-lost");
  assert.equal((late.signal.reason as { kind: string }).kind, "timeout");
  const watched = new TaskContext();
  watched.startTimeout(performance.now(), 5);
  await new Promise((resolve) => watched.signal.addEventListener("abort", resolve));
  assert.equal((watched.signal.reason as { kind: string }).kind, "timeout");
  const long = new TaskContext();
  long.startTimeout(performance.now(), 30 * 86_400_000); // longer than a timer of Node.js can be
  let warnings = 0;
  const count = () => warnings++;
  process.on("warning", count);
  assert.equal(long.signal.aborted, false);
  await sleep(5);
  process.off("warning", count);
  assert.equal(warnings, 0);
  long.finish();
  const finished = new TaskContext();
  finished.startTimeout(performance.now(), 60_000);
  assert.equal(finished.signal.aborted, false);
  finished.finish(); // no timer is left that keeps the process
});

test("an outbox sends starts before results, and no start with its result", () => {
  const out = new Outbox();
  const attempts = ["a", "b"].map((leaseId) => new Attempt(create(LeaseSchema, { leaseId })));
  out.started.push(...attempts);
  attempts[0]!.phase = Phase.Ended;
  attempts[0]!.result = {
    outcome: Result_Outcome.SUCCEEDED,
    error: "",
    output: undefined,
    retryAfterMs: 0,
    tookMs: 1.2345678,
  };
  out.results.push(attempts[0]!, attempts[0]!);
  out.heartbeat = 3;
  out.draining = true;
  out.returned = Array.from({ length: 301 }, (_, i) => `r${i}`);
  out.lost = ["l"];
  const describe = ({ message: m }: WorkRequest) =>
    m.case === "results"
      ? `results ${m.value.results.map((r) => r.leaseId)}`
      : m.case === "started"
        ? `started ${m.value.leaseIds}`
        : m.case === "returned"
          ? `returned ${m.value.leaseIds.length}`
          : m.case;
  assert.deepEqual(out.takeMessages().map(describe), [
    "heartbeat",
    "draining",
    "returned 300",
    "returned 1",
    "lost",
    "started b",
    "results a",
  ]);
  assert.ok(out.isEmpty);
  assert.deepEqual(out.takeMessages(), []);
  for (let i = 0; i < 20; i++) {
    const a = new Attempt(create(LeaseSchema, { leaseId: `x${i}` }));
    a.phase = Phase.Ended;
    a.result = {
      outcome: Result_Outcome.SUCCEEDED,
      error: "",
      output: new Uint8Array(4096),
      retryAfterMs: 0,
      tookMs: 0,
    };
    out.results.push(a);
  }
  assert.equal(out.takeMessages().length, 3); // messages stay small
});

test("heartbeats are acknowledged in order, and only those of the session", () => {
  const beats = new Heartbeats();
  beats.hasUnconfirmedLeases = true;
  for (const at of [10, 20, 30]) beats.queue(at);
  assert.equal(beats.overdueAt(5), 15);
  assert.equal(beats.acknowledge(2, false), 20);
  assert.equal(beats.hasUnconfirmedLeases, true);
  assert.equal(beats.overdueAt(5), 35);
  assert.equal(beats.acknowledge(1, false), undefined);
  assert.equal(beats.acknowledge(2, true), 20); // again, when the leases are confirmed
  assert.equal(beats.hasUnconfirmedLeases, false);
  assert.equal(beats.acknowledge(9, true), undefined);
});

test("routes are tried in the order of their promise", () => {
  const routes = new Routes(["c1:1", "c2:1"]);
  const claim = (now: number, avoid?: string) => routes.claimNext(now, avoid).route;
  const first = claim(0)!;
  assert.ok(first.isConfigured);
  first.isDialing = false;
  routes.markWelcomed(first);
  routes.replaceAdvertised(["a1:1", "a2:1", "a3:1", "a4:1"]);
  const order: string[] = [];
  for (let r = claim(1); r; r = claim(1)) order.push(r.address);
  assert.equal(order[0], first.address);
  assert.equal(order.filter((a) => a.startsWith("c")).length, 2);
  assert.equal(order.length, 5); // at most three that were never reached are dialed at once
  for (const address of order) routes.find(address)!.isDialing = false;
  routes.prefer(["a3:1"]);
  assert.equal(claim(2, first.address)!.address, "a3:1");
  routes.find("a3:1")!.isDialing = false;
  routes.markFailed(routes.find("a3:1")!, 2, 0);
  assert.ok(routes.find("a3:1")!.retryAt >= 2502, "an address that was never reached is tried after seconds");
  for (const address of ["c1:1", "c2:1"]) routes.markFailed(routes.find(address)!, 2, 0);
  assert.ok(routes.find("c1:1")!.retryAt <= 102);
  routes.markRefused(routes.find("c1:1")!, 2, 0);
  assert.ok(routes.find("c1:1")!.retryAt >= 1002);
  routes.replaceAdvertised([]);
  assert.ok(routes.find("a4:1"), "an empty list changes nothing");
  routes.replaceAdvertised(Array.from({ length: 50 }, (_, i) => `n${i}:1`));
  assert.equal(routes.find("a4:1"), undefined);
  assert.equal(Array.from({ length: 50 }, (_, i) => routes.find(`n${i}:1`)).filter(Boolean).length, 32);
});

test("a task from nothing", () => {
  const t = task({ json: { a: 1 }, traceparent: "00-1-2-01", attempt: 3 });
  assert.deepEqual(t.json(), { a: 1 });
  assert.equal(t.isLastAttempt, true);
  assert.equal(t.traceparent, "00-1-2-01");
  assert.equal(t.job, "test");
  assert.equal(t.signal.aborted, false);
  t.end("cancelled");
  assert.equal(t.signal.aborted, true);
});
