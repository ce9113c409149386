import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { create } from "@bufbuild/protobuf";
import {
  Cancel_Reason,
  type Welcome,
  WelcomeSchema,
  type WorkRequest,
  WorkResponseSchema,
} from "../src/gen/fermata/v1/worker_service_pb.js";
import { gatherTime, RateMeter } from "../src/worker/gather.js";
import { Heartbeats } from "../src/worker/heartbeats.js";
import { type Handler, silentLogger } from "../src/worker/index.js";
import { resolveOptions } from "../src/worker/options.js";
import { Runtime } from "../src/worker/runtime.js";
import { type OpenStream, Session } from "../src/worker/session.js";
import { Trigger } from "../src/worker/trigger.js";
import { Trust } from "../src/worker/trust.js";

/** Bench is a worker with a session that nobody carries, in a time of its own. */
class Bench {
  readonly runtime: Runtime;
  readonly session: Session;
  readonly release = new Trigger<void>();
  started = 0;
  #now = 1000;
  #leases = 0;
  #sent: string[] = [];
  #immediates: (() => void)[] = [];

  constructor(
    private readonly t: TestContext,
    readonly slots = 100,
  ) {
    t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
    t.mock.method(globalThis, "setImmediate", (call: () => void) => this.#immediates.push(call));
    t.mock.method(performance, "now", () => this.#now);
    const handlers: Record<string, Handler> = {
      quick: () => {},
      slow: () => this.release.fired,
      fails: () => {
        throw new Error("broken");
      },
      busy: () => {
        this.started++;
        this.#now++;
      },
    };
    const options = resolveOptions({ addresses: "127.0.0.1:1", slots, logger: silentLogger });
    this.runtime = new Runtime(options, new Map(Object.entries(handlers)));
    let source: () => WorkRequest[] | undefined = () => [];
    const stream = {
      connection: { address: "a", lastContact: 0 },
      send: (s: typeof source) => (source = s),
      wake: () => void this.#sent.push(...(source() ?? []).flatMap(describe)),
      receive: () => new Promise(() => {}),
    };
    const events = { receive() {}, flushed() {}, ended() {} };
    const welcome: Welcome = create(WelcomeSchema, { leaseTtl: { seconds: 3600n } });
    this.session = new Session(stream as unknown as OpenStream, welcome, 1, this.#now, events);
    this.runtime.attachSession(this.session);
    void this.session.run();
  }

  lease(...handlers: string[]): void {
    const leases = handlers.map((handler) => ({ leaseId: `${++this.#leases}`, run: "r", handler, attempt: 1 }));
    this.runtime.receive(
      this.session,
      create(WorkResponseSchema, { message: { case: "leases", value: { leases } } }),
    );
  }

  wait(ms: number): void {
    for (let i = 0; i < ms; i++) {
      this.#now++;
      this.t.mock.timers.tick(1);
      this.endTurn();
    }
  }

  /** endTurn ends a turn of the event loop. */
  endTurn(): void {
    for (const call of this.#immediates.splice(0)) call();
  }

  /** want checks what is sent in this turn of the event loop. */
  want(...what: string[]): void {
    this.endTurn();
    assert.deepEqual(this.#sent, what);
    this.#sent = [];
  }

  /** runQuick runs that many attempts, one each interval. */
  runQuick(n: number, interval: number): void {
    for (let i = 0; i < n; i++) {
      this.lease("quick");
      this.wait(interval);
    }
  }

  /** flush sends whatever waits. */
  flush(): void {
    this.session.wake();
    this.endTurn();
    this.#sent = [];
  }

  /** gather reaches a rate at which results are gathered. */
  gather(): this {
    this.runQuick(200, 1);
    this.flush();
    return this;
  }
}

function describe({ message: m }: WorkRequest): string[] {
  if (m.case === "results") return [`results ${m.value.results.length}`];
  if (m.case === "started") return [`starts ${m.value.leaseIds.length}`];
  return m.case === undefined ? [] : [m.case];
}

test("frequent results are gathered", (t) => {
  const b = new Bench(t).gather();
  b.lease("quick");
  b.want();
  b.wait(1);
  b.lease("quick", "quick");
  b.want();
  b.wait(gatherTime - 1);
  b.want("results 3");
  b.lease("slow"); // starts wait as long
  b.wait(gatherTime - 1);
  b.want();
  b.wait(1);
  b.want("starts 1");
});

test("rare results are sent at once", (t) => {
  const b = new Bench(t);
  for (let i = 0; i < 50; i++) {
    b.lease("quick");
    b.want("results 1");
    b.wait(5); // 200 a second
  }
  // After a pause the rate of the time before does not count.
  b.gather();
  b.wait(1000);
  b.lease("quick");
  b.want("results 1");
});

test("what somebody waits for is sent at once", async (t) => {
  const cases: Record<string, (b: Bench) => void> = {
    "a failure": (b) => {
      b.lease("quick");
      b.lease("fails");
      b.want("results 2");
    },
    "half of the slots are taken": (b) => {
      b.lease(...new Array<string>(50).fill("slow"));
      b.flush();
      b.runQuick(200, 1);
      b.flush();
      b.lease("quick");
      b.want("results 1");
    },
    "many results": (b) => {
      b.lease(...new Array<string>(60).fill("quick"));
      b.want("results 60");
    },
    "an attempt waits for a slot": (b) => {
      b.lease("quick");
      b.want();
      b.lease(...new Array<string>(101).fill("slow"));
      b.want("starts 100", "results 1");
    },
    "the worker drains": (b) => {
      b.lease("quick", "slow");
      b.want();
      b.runtime.beginDrain();
      b.want("draining", "starts 1", "results 1");
    },
    "the node drains": (b) => {
      b.lease("quick");
      b.want();
      const drain = create(WorkResponseSchema, { message: { case: "drain", value: {} } });
      b.runtime.receive(b.session, drain);
      b.want("results 1");
    },
    "the session is closed": (b) => {
      b.lease("quick");
      b.want();
      b.session.close();
      b.want("results 1");
    },
  };
  for (const [name, check] of Object.entries(cases)) await t.test(name, (t) => check(new Bench(t).gather()));
});

test("a cancelled attempt of a gathering worker is answered at once", (t) => {
  const b = new Bench(t).gather();
  b.lease("slow");
  b.flush();
  const message = { leaseIds: ["1000"], reason: Cancel_Reason.LEASE_LOST };
  b.runtime.receive(b.session, create(WorkResponseSchema, { message: { case: "cancel", value: message } }));
  b.want("returned");
});

test("results of a worker that drains are sent at once", async (t) => {
  const b = new Bench(t).gather();
  b.lease("slow");
  b.runtime.beginDrain();
  b.flush();
  b.release.fire();
  for (let i = 0; i < 5; i++) await Promise.resolve();
  b.want("results 1");
});

test("a meter of rates", () => {
  const meter = new RateMeter();
  const count = (from: number, interval: number, n: number) => {
    for (let i = 1; i <= n; i++) meter.count(from + i * interval);
  };
  assert.equal(meter.perSecond, 0);
  count(0, 1, 1000);
  assert.ok(Math.abs(meter.perSecond - 1000) < 20, `${meter.perSecond}`);
  count(1000, 5, 200);
  assert.ok(Math.abs(meter.perSecond - 200) < 20, `${meter.perSecond}`);
  meter.count(60_000);
  assert.ok(meter.perSecond < 10, `${meter.perSecond}`);
});

test("handlers that are not asynchronous leave time for heartbeats", (t) => {
  const b = new Bench(t, 10_000);
  b.lease(...new Array<string>(10_000).fill("busy")); // each takes a millisecond
  const most = 21;
  let turns = 1;
  for (let before = 0; ; turns++) {
    assert.ok(b.started - before <= most, `${b.started - before} in one turn`);
    if (b.started === 10_000) break;
    before = b.started;
    b.endTurn();
    assert.ok(b.started > before, `no progress after ${before}`);
  }
  assert.ok(turns >= 10_000 / most, `${turns} turns`);
});

test("many returned leases take no time that grows with their number", (t) => {
  const b = new Bench(t, 100_000);
  b.runtime.beginDrain();
  b.flush();
  const ids = 100_000;
  b.lease(...new Array<string>(ids).fill("quick"));
  assert.equal(b.session.unconfirmedReturns().length, ids);
  b.wait(16_000); // all have been read, or the stream would have ended
  b.flush();
  assert.equal(b.session.unconfirmedReturns().length, 0);
});

test("an event loop that was blocked is reported, at most once a minute", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let now = 1000;
  t.mock.method(performance, "now", () => now);
  const blocked: number[] = [];
  const trust = new Trust(
    () => assert.fail("trust has ended"),
    (ms) => blocked.push(ms),
  );
  const session = {
    heartbeats: new Heartbeats(),
    sessionTtl: 8000,
    sendsHeartbeats: true,
    helloAt: now,
    trustPeriod: 1e9,
    out: {},
    wake() {},
    unresponsive: new Trigger<void>(),
  };
  trust.begin(session as unknown as Session);
  session.heartbeats.acknowledge(1, true);
  /** beat lets the next timer of heartbeats expire, late by so many milliseconds. */
  const beat = (late: number) => {
    const next = session.heartbeats.timerAt - now;
    now += next + late;
    t.mock.timers.tick(next);
    session.heartbeats.acknowledge(session.heartbeats.seq, true);
  };
  beat(0);
  beat(999);
  assert.deepEqual(blocked, []);
  beat(1500);
  assert.deepEqual(blocked, [1500]);
  beat(2000);
  assert.deepEqual(blocked, [1500]);
  for (let i = 0; i < 31; i++) beat(0); // more than a minute
  beat(1000);
  assert.equal(blocked.length, 2);
  trust.stop();
});
