import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Fermata, json, type JobInput, Outcome, type Run, Run_State, text } from "../src/index.js";
import { type Handler, type Logger, Permanent, RetryAfter, Worker, type WorkerOptions } from "../src/worker/index.js";
import { eventually, Program, startDev } from "./cluster.js";
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

/** LogLines are the lines of a worker's log. */
class LogLines implements Logger {
  readonly lines: string[] = [];
  info = (message: string, attributes: Record<string, unknown>) =>
    void this.lines.push(`${message} ${JSON.stringify(attributes)}`);
  warn = this.info;
  error = this.info;
}

let count = 0;

/** withWorker runs a worker of a queue of its own while a test uses it. */
async function withWorker(
  handlers: Record<string, Handler>,
  use: (run: (handler: string, job?: JobInput) => Promise<Run>, log: LogLines, worker: Worker) => Promise<void>,
  options: Partial<WorkerOptions> = {},
): Promise<void> {
  const queue = `worker-${++count}`;
  const log = new LogLines();
  const worker = new Worker({ addresses: dev.address, queues: [queue], slots: 8, logger: log, ...options });
  for (const [name, handler] of Object.entries(handlers)) worker.handle(name, handler);
  const stop = new AbortController();
  const running = worker.run({ signal: stop.signal });
  const start = async (handler: string, job: JobInput = {}) => {
    const id = `${queue}-${++count}`;
    await fermata.jobs.create(id, { queue, handler, retryPolicy: { maxAttempts: 1 }, ...job });
    return fermata.jobs.run(id);
  };
  try {
    await use(start, log, worker);
  } finally {
    stop.abort();
    await running;
  }
}

const ended = (run: Run) => fermata.jobs.waitRun(run.name, { timeout: "30s" });
const live = (run: Run) =>
  eventually("the run is live", async () => (await fermata.jobs.getRun(run.name)).state === Run_State.RUNNING);

test("what a handler returns is the output", async () => {
  const values: Record<string, unknown> = {
    bytes: new Uint8Array([0, 255, 1]),
    buffer: Buffer.from("ä"),
    text: "text",
    object: { a: [1] },
    number: 0,
    nothing: undefined,
    null: null,
    long: "ö".repeat(4000),
    surrogate: "\ud800",
  };
  const handlers = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, () => value]));
  await withWorker(
    {
      ...handlers,
      circular: () => {
        const a: unknown[] = [];
        a.push(a);
        return a;
      },
    },
    async (run) => {
      const output = async (name: string) => Buffer.from((await ended(await run(name))).output);
      assert.deepEqual(await output("bytes"), Buffer.from([0, 255, 1]));
      assert.equal((await output("buffer")).toString(), "ä");
      assert.equal((await output("text")).toString(), "text");
      assert.equal((await output("object")).toString(), '{"a":[1]}');
      assert.equal((await output("number")).toString(), "0");
      assert.equal((await output("nothing")).length, 0);
      assert.equal((await output("null")).length, 0);
      assert.equal((await output("long")).toString(), "ö".repeat(2048));
      assert.equal((await output("surrogate")).toString(), "\ufffd");
      const failed = await ended(await run("circular"));
      assert.equal(failed.outcome, Outcome.DEAD);
      assert.match(failed.error, /^TypeError: Converting circular structure/);
    },
  );
});

test("whatever a handler throws fails its attempt, and nothing else", async () => {
  const handlers: Record<string, Handler> = {
    error: () => {
      throw new Error("broken");
    },
    rejected: async () => {
      await sleep(1);
      throw new RangeError("too far");
    },
    nothing: () => {
      throw undefined;
    },
    object: () => {
      throw Object.create(null);
    },
    symbol: () => Promise.reject(Symbol("s")),
    getter: () => {
      throw Object.defineProperty(new Error("x"), "message", {
        get() {
          throw new Error("no");
        },
      });
    },
    surrogate: () => {
      throw new Error("\ud800 end");
    },
    long: () => {
      throw new Error("é".repeat(5000));
    },
    permanent: () => {
      throw new Error("outer", { cause: new Permanent("for good") });
    },
    fine: () => "fine",
  };
  await withWorker(handlers, async (run) => {
    const error = async (name: string) => {
      const r = await ended(await run(name));
      assert.equal(r.outcome, Outcome.DEAD, name);
      return r.error;
    };
    assert.match(await error("error"), /^broken at .*\(worker\.test\.js:\d+\)$/);
    assert.match(await error("rejected"), /^RangeError: too far at .*worker\.test\.js:\d+/);
    assert.equal(await error("nothing"), "thrown: undefined");
    assert.equal(await error("object"), "the handler threw a value that has no text");
    assert.equal(await error("symbol"), "thrown: Symbol(s)");
    assert.equal(await error("getter"), "the handler threw a value that has no text");
    assert.match(await error("surrogate"), /^\ufffd end at /);
    assert.equal(await error("long"), "é".repeat(256));
    assert.match(await error("permanent"), /^outer at /);
    assert.match(await error("missing"), /^no handler "missing" on this worker/);
    assert.equal((await ended(await run("fine"))).outcome, Outcome.SUCCEEDED);
  });
});

test("an error that a handler leaves uncaught fails its attempt, and nothing else", async () => {
  const path = fileURLToPath(new URL("programs/strays.js", import.meta.url));
  const program = new Program(process.execPath, [path], { FERMATA_ADDRESS: dev.address });
  const run = async (handler: string) => {
    await fermata.jobs.create(`stray-${handler}`, { queue: "strays", handler, retryPolicy: { maxAttempts: 1 } });
    return fermata.jobs.run(`stray-${handler}`, { wait: "30s" });
  };
  const [other, late, promise, timer] = await Promise.all(["other", "late", "promise", "timer"].map(run));
  assert.match(promise!.error, /^forgotten promise at /);
  assert.match(timer!.error, /^in a timer at /);
  assert.equal(late!.outputText, "fine");
  assert.equal(other!.outputText, "fine");
  await eventually("a line", () =>
    program.lines.some((l) => l.includes("a handler that has ended left an error uncaught")),
  );
  assert.equal(await program.stop(), 0, program.lines.join("\n"));
  const own = new Program(process.execPath, [path, "own"], { FERMATA_ADDRESS: dev.address });
  assert.equal(await own.ended, 1);
  assert.ok(own.lines.some((l) => l.includes("Uncaught Error: of the program")));
});

test("retries, permanent failures and requested delays", async () => {
  const handlers: Record<string, Handler> = {
    flaky: (task) => {
      if (task.attempt < 3) throw new Error("not yet");
      return `${task.attempt} of ${task.maxAttempts} ${task.isLastAttempt}`;
    },
    permanent: () => {
      throw new Permanent(new Error("for good"));
    },
    later: (task) => {
      if (task.attempt === 1) throw new RetryAfter("busy", "1s");
    },
  };
  await withWorker(handlers, async (run) => {
    const job = { retryPolicy: { maxAttempts: 3, baseDelay: "10ms", maxDelay: "2s" } };
    assert.equal((await ended(await run("flaky", job))).outputText, "3 of 3 true");
    const dead = await ended(await run("permanent", job));
    assert.deepEqual([dead.outcome, dead.attempts, dead.error], [Outcome.DEAD, 1, "for good"]);
    const first = Date.now();
    assert.equal((await ended(await run("later", job))).attempts, 2);
    assert.ok(Date.now() - first >= 1000);
  });
});

test("a payload that cannot be decoded ends the run, and is in neither log nor error", async () => {
  await withWorker(
    {
      decode: (task) => task.json(),
      leak: (task) => {
        throw new Error(task.text());
      },
    },
    async (run, log) => {
      const job = { payload: Buffer.from("secret-payload"), retryPolicy: { maxAttempts: 3 } };
      const dead = await ended(await run("decode", job));
      assert.deepEqual([dead.outcome, dead.attempts, dead.error], [Outcome.DEAD, 1, "payload: not JSON"]);
      assert.equal((await ended(await run("decode"))).error, "payload: empty, want JSON");
      await ended(await run("leak", { payload: Buffer.from("secret-payload") }));
      const failures = log.lines.filter((l) => l.startsWith("attempt failed"));
      assert.equal(failures.length, 3);
      assert.ok(!log.lines.join("\n").includes("secret"), log.lines.join("\n"));
    },
  );
});

test("the signal of a task says why it is aborted", async () => {
  const seen: string[] = [];
  const wait: Handler = async (task) => {
    await new Promise((resolve) => task.signal.addEventListener("abort", resolve));
    seen.push((task.signal.reason as { kind: string }).kind);
    throw task.signal.reason;
  };
  await withWorker(
    {
      wait,
      ignore: async () => {
        await sleep(400);
        throw new Error("late");
      },
    },
    async (run) => {
      assert.match((await ended(await run("wait", { timeout: "100ms" }))).error, /timeout has passed/);
      assert.match((await ended(await run("ignore", { timeout: "100ms" }))).error, /^late at /);
      const cancelled = await run("wait");
      await live(cancelled);
      await fermata.jobs.cancelRun(cancelled.name);
      assert.equal((await ended(cancelled)).outcome, Outcome.CANCELLED);
    },
  );
  assert.deepEqual(seen, ["timeout", "cancelled"]);
});

test("middleware wraps handlers, the first outermost", async () => {
  const worker = new Worker({ addresses: dev.address });
  const calls: string[] = [];
  worker.use(
    async (_, next) => {
      calls.push("a");
      return `<${String(await next())}>`;
    },
    async (_, next) => {
      calls.push("b");
      return next();
    },
  );
  worker.handle("x", () => "x");
  assert.throws(() => worker.use(async (_, next) => next()), /use after handle/);
  assert.throws(() => worker.handle("x", () => {}), /registered twice/);
  await withWorker({}, async () => {}, {}).catch((error: Error) => assert.match(error.message, /no handler/));
});

test("a lost connection does not disturb a running handler, and its result arrives", async () => {
  const proxy = await Proxy.start(dev.address);
  let release = () => {};
  const released = new Promise<void>((resolve) => (release = resolve));
  let calls = 0;
  await withWorker(
    {
      hold: async () => {
        calls++;
        await released;
        return "held";
      },
    },
    async (run, log) => {
      const held = await run("hold");
      await live(held);
      for (let i = 0; i < 3; i++) {
        proxy.drop();
        await eventually("a new stream", () => log.lines.filter((l) => l.startsWith("connected")).length === i + 2);
      }
      release();
      assert.equal((await ended(held)).outputText, "held");
      assert.equal(calls, 1);
    },
    { addresses: proxy.address },
  );
  await proxy.cut();
});

test("a worker that stops finishes what runs, and cuts off what takes too long", async () => {
  const log = new LogLines();
  const worker = new Worker({ addresses: dev.address, queues: ["stops"], drainTimeout: "300ms", logger: log });
  let started = 0;
  worker.handle("short", async () => {
    started++;
    await sleep(100);
    return "short";
  });
  worker.handle("endless", async (task) => {
    started++;
    await sleep(60_000, undefined, { signal: task.signal });
  });
  assert.equal(worker.notReadyReason, "not running");
  const running = worker.run();
  const job = { queue: "stops", retryPolicy: { maxAttempts: 1 } };
  await fermata.jobs.create("stops-short", { ...job, handler: "short" });
  await fermata.jobs.create("stops-endless", { ...job, handler: "endless" });
  const runs = await Promise.all(["stops-short", "stops-endless"].map((id) => fermata.jobs.run(id)));
  await eventually("both have started", () => started === 2);
  assert.equal(worker.notReadyReason, undefined);
  worker.stop();
  await assert.rejects(running, { name: "DrainTimeout", attempts: 1, message: /^1 attempt was cut off / });
  assert.equal((await ended(runs[0]!)).outputText, "short");
  const next = new Worker({ addresses: dev.address, queues: ["stops"], logger: log });
  next.handle("endless", (task) => `attempt ${task.attempt}`);
  const working = next.run();
  assert.equal((await ended(runs[1]!)).outputText, "attempt 1"); // being cut off is no attempt
  next.stop();
  await working;
});

test("a program whose drain takes too long logs a sentence and exits with code 1", async () => {
  const program = new Program(process.execPath, [fileURLToPath(new URL("./programs/stubborn.js", import.meta.url))], {
    FERMATA_ADDRESS: dev.address,
  });
  await fermata.jobs.create("stubborn", { queue: "stubborn", handler: "stubborn" });
  await fermata.jobs.run("stubborn");
  await eventually("the handler runs", () => program.lines.includes("started"));
  assert.equal(await program.stop(), 1, program.lines.join("\n"));
  assert.match(program.lines.at(-1)!, / ERROR 1 attempt was cut off when the worker stopped, and will be leased again /);
  assert.ok(!program.lines.some((line) => /^\s+at /.test(line)), program.lines.join("\n"));
});

test("a task has the fields of its run", async () => {
  const fields: Handler = (task) => ({
    namespace: task.namespace,
    job: task.job,
    run: task.run,
    queue: task.queue,
    handler: task.handler,
    labels: task.labels,
    attempt: task.attempt,
    timeout: task.timeoutMs,
    token: task.token > 0n,
    payload: task.json(),
    due: task.dueTime instanceof Date && task.nominalTime instanceof Date,
  });
  await withWorker({ fields }, async (run) => {
    const r = await run("fields", { payload: json([1]), labels: { a: "b" }, timeout: "7s" });
    const end = await ended(r);
    assert.deepEqual(JSON.parse(end.outputText), {
      namespace: "default",
      job: r.name.split("/")[3],
      run: r.name,
      queue: `worker-${/worker-(\d+)/.exec(r.name)![1]}`,
      handler: "fields",
      labels: { a: "b" },
      attempt: 1,
      timeout: 7000,
      token: true,
      payload: [1],
      due: true,
    });
  });
});

test("a run can have a payload of its own, and a job another name", async () => {
  await withWorker({ echo: (task) => task.text() }, async (run) => {
    const first = await ended(await run("echo", { payload: text("of the job") }));
    assert.equal(first.outputText, "of the job");
    const id = first.name.split("/")[3]!;
    const own = await fermata.jobs.run(id, { payload: text("of the run"), wait: "30s" });
    assert.equal(own.outputText, "of the run");
    await assert.rejects(fermata.jobs.run(id, { payload: text("x"), backoff: "keep" }), TypeError);
    await fermata.jobs.rename(id, `${id}-new`);
    assert.equal((await fermata.jobs.run(`${id}-new`, { wait: "30s" })).outputText, "of the job");
    for await (const job of fermata.jobs.list({ idPrefix: `${id}-new`, recentRuns: 3 })) {
      assert.equal(job.status!.recentRuns.length, 3);
    }
    await assert.rejects(fermata.jobs.get(id), { code: "NOT_FOUND" });
  });
});

test("a misspelt option is refused, with the nearest one", () => {
  const addresses = "127.0.0.1:1";
  const refused: [object | undefined, RegExp][] = [
    [{ addresses, queue: ["mail"] }, /no option "queue", did you mean "queues"\?/],
    [{ addresses, drain_timeout: "1s" }, /did you mean "drainTimeout"\?/],
    [{ addresses, colour: "red" }, /no option "colour", want addresses, namespace, queues, /],
    [{ address: addresses }, /did you mean "addresses"\?/],
    [{ addresses, queues: "mail" }, /queues: want an array/],
    [{}, /addresses is missing/],
    [undefined, /want an object with options/],
  ];
  for (const [options, message] of refused) {
    assert.throws(() => new Worker(options as never), { name: "TypeError", message });
  }
  assert.throws(() => new Worker({ addresses }).handle("h", undefined as never), /"h" is not a function/);
});

test("invalid options are refused together", () => {
  const options = { addresses: ["x"], slots: 0, queues: ["a b"], id: "", drainTimeout: -1, token: "t", prefetch: -1 };
  assert.throws(
    () => new Worker(options),
    (error: Error) =>
      ["not host:port", "slots", "queue", "id", "drainTimeout", "prefetch"].every((part) =>
        error.message.includes(part),
      ),
  );
});
