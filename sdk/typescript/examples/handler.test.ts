/** A handler is a function: a test calls it with a task, without a worker or a node.
 *
 *     node --test build/examples/handler.test.js */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { task } from "@fermata-io/fermata/testing";
import { type Handler, Permanent } from "@fermata-io/fermata/worker";

const greet: Handler = async (task) => {
  const { name } = task.json<{ name?: string }>();
  if (!name) throw new Permanent("no name");
  await sleep(task.attempt > 1 ? 60_000 : 0, undefined, { signal: task.signal });
  return { greeting: `Hello ${name}` };
};

test("greets", async () => {
  assert.deepEqual(await greet(task({ json: { name: "Ada" } })), { greeting: "Hello Ada" });
});

test("fails for good without a name", async () => {
  await assert.rejects(async () => greet(task({ json: {} })), Permanent);
});

test("ends when the run is cancelled", async () => {
  const t = task({ json: { name: "Ada" }, attempt: 2 });
  const greeting = greet(t);
  t.end("cancelled");
  await assert.rejects(async () => greeting, { name: "AbortError" });
});
