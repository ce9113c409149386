import assert from "node:assert/strict";
import { createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import {
  type Hello,
  ResultAck_Status,
  WorkerService,
  type WorkResponseSchema,
} from "../src/gen/fermata/v1/worker_service_pb.js";
import { silentLogger, Worker } from "../src/worker/index.js";
import { Trigger } from "../src/worker/trigger.js";

type Response = MessageInitShape<typeof WorkResponseSchema>;

/** ScriptedNode answers a Hello with what a test wants, then acknowledges heartbeats and results. */
class ScriptedNode {
  readonly hello = new Trigger<Hello>();
  readonly results: string[] = [];
  readonly returned: string[] = [];
  readonly notifiedOfStop = new Trigger<void>();
  /** ended: the worker has closed its side. */
  readonly ended = new Trigger<void>();
  /** mayWelcome is waited for before a Hello is answered. */
  mayWelcome = Promise.resolve();
  afterEnd: () => AsyncIterable<Response> = async function* () {};
  address = "";
  readonly #server = createServer(
    connectNodeAdapter({
      routes: (router) => router.service(WorkerService, { work: (requests) => this.#work(requests) }),
    }),
  );

  constructor(readonly afterWelcome: () => Response[]) {}

  async start(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    this.address = `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
    return this;
  }

  stop(): void {
    this.#server.close();
  }

  async *#work(requests: AsyncIterable<{ message: { case?: string; value?: unknown } }>): AsyncGenerator<Response> {
    for await (const { message } of requests) {
      if (message.case === "hello") {
        this.hello.fire(message.value as Hello);
        await this.mayWelcome;
      }
      yield* this.#answer(message.case, message.value);
    }
    this.ended.fire();
    yield* this.afterEnd();
  }

  *#answer(kind: string | undefined, value: unknown): Generator<Response> {
    if (kind === "draining") {
      this.notifiedOfStop.fire();
    } else if (kind === "returned") {
      this.returned.push(...(value as { leaseIds: string[] }).leaseIds);
    } else if (kind === "hello") {
      const ttls = { leaseTtl: { seconds: 30n }, sessionTtl: { seconds: 10n } };
      yield { message: { case: "welcome", value: { node: this.address, ...ttls } } };
      for (const response of this.afterWelcome()) yield response;
    } else if (kind === "heartbeat") {
      yield { message: { case: "heartbeatAck", value: { seq: (value as { seq: bigint }).seq, confirmed: true } } };
    } else if (kind === "results") {
      const ids = (value as { results: { leaseId: string }[] }).results.map((r) => r.leaseId);
      this.results.push(...ids);
      const acks = ids.map((leaseId) => ({ leaseId, status: ResultAck_Status.ACCEPTED }));
      yield { message: { case: "resultAcks", value: { acks } } };
    }
  }
}

const lease = { leaseId: "lease", run: "namespaces/n/jobs/j/runs/r", handler: "hold", attempt: 1 };

test("a worker that is asked to move takes its leases to the other node", async () => {
  const released = new Trigger<void>();
  const other = await new ScriptedNode(() => [{ message: { case: undefined } }]).start();
  const first = await new ScriptedNode(() => [
    { message: { case: "leases", value: { leases: [lease] } } },
    { message: { case: "relocate", value: { addresses: [other.address, "not an address"] } } },
  ]).start();
  const worker = new Worker({ addresses: first.address, logger: silentLogger });
  worker.handle("hold", () => released.fired);
  const running = worker.run();
  assert.deepEqual((await first.hello.fired).liveLeaseIds, []);
  const hello = await other.hello.fired;
  assert.equal(hello.sessionEpoch, 2);
  assert.deepEqual(hello.liveLeaseIds, ["lease"]);
  await first.ended.fired; // the worker has closed its side
  released.fire();
  worker.stop();
  await running;
  assert.deepEqual([first.results, other.results], [[], ["lease"]]);
  first.stop();
  other.stop();
});

test("a worker that stops after it has moved returns what came too late", async () => {
  const other = await new ScriptedNode(() => []).start();
  const first = await new ScriptedNode(() => [
    { message: { case: "relocate", value: { addresses: [other.address] } } },
  ]).start();
  first.afterEnd = async function* () {
    yield { message: { case: "leases", value: { leases: [lease] } } };
    await other.notifiedOfStop.fired;
  };
  const worker = new Worker({ addresses: first.address, logger: silentLogger });
  worker.handle("hold", () => undefined);
  const running = worker.run();
  await first.ended.fired;
  worker.stop();
  await running;
  assert.deepEqual(other.returned, ["lease"]);
  first.stop();
  other.stop();
});

test("a worker that stops while it asks another node to take its leases notifies that one", async () => {
  const [released, welcomed] = [new Trigger<void>(), new Trigger<void>()];
  const other = await new ScriptedNode(() => []).start();
  other.mayWelcome = welcomed.fired;
  const first = await new ScriptedNode(() => [
    { message: { case: "leases", value: { leases: [lease] } } },
    { message: { case: "relocate", value: { addresses: [other.address] } } },
  ]).start();
  const worker = new Worker({ addresses: first.address, logger: silentLogger });
  worker.handle("hold", () => released.fired);
  const running = worker.run();
  assert.deepEqual((await other.hello.fired).liveLeaseIds, ["lease"]);
  worker.stop();
  while (worker.notReadyReason !== "draining") await new Promise(setImmediate);
  welcomed.fire();
  await other.notifiedOfStop.fired;
  released.fire();
  await running;
  // The first node would return the lease that the other one has taken over, if it did not know of its start.
  assert.equal(first.notifiedOfStop.hasFired, false);
  assert.deepEqual(other.results, ["lease"]);
  first.stop();
  other.stop();
});
