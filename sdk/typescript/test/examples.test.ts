import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Fermata, json, Outcome, Run_State } from "../src/index.js";
import { eventually, Program, startDev } from "./cluster.js";

const examples = fileURLToPath(new URL("../examples/", import.meta.url));

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

function startExample(name: string, ...args: string[]): Program {
  return new Program(process.execPath, [join(examples, `${name}.js`), ...args], { FERMATA_ADDRESS: dev.address });
}

/** withExample runs a worker of an example while a test uses it, and expects that it drains without an error. */
async function withExample(name: string, use: (example: Program) => Promise<void>, ...args: string[]): Promise<void> {
  const example = startExample(name, ...args);
  try {
    await use(example);
  } finally {
    assert.equal(await example.stop(), 0, example.lines.join("\n"));
  }
}

async function printed(example: Program, text: string): Promise<void> {
  await eventually(`${text} in ${JSON.stringify(example.lines)}`, () => example.lines.some((l) => l.includes(text)));
}

const tested = new Set<string>();
function example(name: string, run: () => Promise<void>): void {
  tested.add(name);
  test(name, run);
}

example("digest-worker", () =>
  withExample("digest-worker", async (example) => {
    await fermata.jobs.create("digest", {
      queue: "mail",
      handler: "send-digest",
      payload: Buffer.from("ada@example.com"),
    });
    await fermata.jobs.create("digest-nobody", { queue: "mail", handler: "send-digest" });
    const run = await fermata.jobs.run("digest", { wait: "30s" });
    assert.equal(run.outputText, "sent to ada@example.com");
    const dead = await fermata.jobs.run("digest-nobody", { wait: "30s" });
    assert.equal(dead.outcome, Outcome.DEAD);
    assert.equal(dead.error, "no such account");
    await printed(example, "digest sent to ada@example.com, token ");
  }),
);

example("create-jobs", async () => {
  const example = startExample("create-jobs");
  assert.equal(await example.ended, 0, example.lines.join("\n"));
  assert.equal(example.lines.filter((l) => l.startsWith("report-")).length, 5);
  assert.match(example.lines.at(-1)!, /^then \d{4}-.* and \d{4}-/);
});

example("run-and-wait", async () => {
  const example = startExample("run-and-wait");
  assert.equal(await example.ended, 0, example.lines.join("\n"));
  assert.ok(example.lines.includes('SUCCEEDED with output {"sent":17}'));
  assert.ok(example.lines.some((l) => l.startsWith("no such job: ")));
});

example("watch-events", async () => {
  const directory = await mkdtemp(join(tmpdir(), "fermata-events-"));
  const place = join(directory, "place");
  try {
    await withExample(
      "watch-events",
      async (example) => {
        await eventually("a place", () => readFile(place, "utf8").catch(() => ""));
        await fermata.jobs.create("watched", { handler: "nothing" });
        await printed(example, "job.created namespaces/default/jobs/watched");
        await fermata.jobs.create("watched-next", { handler: "nothing" });
        await printed(example, "job.created namespaces/default/jobs/watched-next");
      },
      place,
    );
    await fermata.jobs.create("watched-later", { handler: "nothing" });
    await withExample("watch-events", (example) => printed(example, "jobs/watched-later"), place);
  } finally {
    await rm(directory, { recursive: true });
  }
});

example("middleware", () =>
  withExample("middleware", async (example) => {
    const job = { queue: "tenants", handler: "bill", retryPolicy: { maxAttempts: 1 } };
    await fermata.jobs.create("bill", { ...job, labels: { tenant: "acme" } });
    await fermata.jobs.create("bill-nobody", job);
    assert.equal((await fermata.jobs.run("bill", { wait: "30s" })).outputText, "billed acme");
    const failed = await fermata.jobs.run("bill-nobody", { wait: "30s" });
    assert.match(failed.error, /^the job has no label tenant at /);
    await printed(example, "bill took ");
  }),
);

example("failures", async () => {
  let server: Server | undefined;
  try {
    const statuses = [404, 503, 500, 200];
    server = createServer((request, response) => {
      response.writeHead(Number(request.url?.slice(1)), { "retry-after": "1" }).end("hello");
    });
    await new Promise<void>((resolve) => server!.listen(0, "127.0.0.1", resolve));
    const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    await withExample("failures", async () => {
      const runs = await Promise.all(
        statuses.map(async (status) => {
          const policy = { maxAttempts: 2, baseDelay: "10ms" };
          await fermata.jobs.create(`fetch-${status}`, {
            queue: "crawl",
            handler: "fetch-page",
            payload: json({ url: `${base}/${status}` }),
            retryPolicy: policy,
          });
          return fermata.jobs.run(`fetch-${status}`, { wait: "30s" });
        }),
      );
      assert.deepEqual(
        runs.map((r) => r.outcome),
        [Outcome.DEAD, Outcome.DEAD, Outcome.DEAD, Outcome.SUCCEEDED],
      );
      assert.deepEqual(
        runs.map((r) => r.attempts),
        [1, 2, 2, 1],
      );
      assert.match(runs[1]!.error, /asks for a pause/);
      assert.match(runs[2]!.error, /answers 500 at /);
      assert.equal(runs[3]!.outputText, '{"status":200,"bytes":5}');
    });
  } finally {
    server?.close();
  }
});

example("cancellation", () =>
  withExample("cancellation", async (example) => {
    const job = { queue: "imports", handler: "import", retryPolicy: { maxAttempts: 1 } };
    await fermata.jobs.create("import", job);
    await fermata.jobs.create("import-slow", { ...job, timeout: "200ms" });
    const run = await fermata.jobs.run("import");
    await eventually("the run is live", async () => (await fermata.jobs.getRun(run.name)).state === Run_State.RUNNING);
    await fermata.jobs.cancelRun(run.name);
    assert.equal((await fermata.jobs.waitRun(run.name, { timeout: "30s" })).outcome, Outcome.CANCELLED);
    await printed(example, "rows: cancelled");
    await printed(example, "removed ");
    const late = await fermata.jobs.run("import-slow", { wait: "30s" });
    assert.equal(late.error, "the attempt's timeout has passed");
    await printed(example, "rows: timeout");
  }),
);

example("fencing", () =>
  withExample("fencing", async (example) => {
    await fermata.jobs.create("balance", { queue: "balances", handler: "close-month" });
    for (let i = 0; i < 2; i++)
      assert.equal((await fermata.jobs.run("balance", { wait: "30s" })).outputText, "written");
    await eventually("two writes", () => example.lines.filter((l) => l.startsWith("wrote balance")).length === 2);
  }),
);

example("tracing", async () => {
  const example = startExample("tracing");
  assert.equal(await example.ended, 0, example.lines.join("\n"));
  assert.ok(example.lines.some((l) => /^(in trace [0-9a-f]{32}|not traced)/.test(l)));
});

example("handler.test", async () => {
  const example = new Program(process.execPath, ["--test", join(examples, "handler.test.js")]);
  assert.equal(await example.ended, 0, example.lines.join("\n"));
});

test("every example is tested", async () => {
  const files = (await readdir(examples)).filter((f) => f.endsWith(".js")).map((f) => f.slice(0, -".js".length));
  assert.deepEqual(files.sort(), [...tested].sort());
});
