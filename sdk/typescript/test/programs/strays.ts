/** A worker whose handlers leave errors uncaught. With the argument `own`, the program itself does. */
import { setTimeout as sleep } from "node:timers/promises";
import { shutdownSignal, Worker } from "../../src/worker/index.js";

const worker = new Worker({ addresses: process.env["FERMATA_ADDRESS"]!, queues: ["strays"] });
worker.handle("promise", async () => {
  void sleep(5).then(() => {
    throw new Error("forgotten promise");
  });
  await sleep(60_000);
});
worker.handle(
  "timer",
  () =>
    new Promise(() =>
      setTimeout(() => {
        throw new Error("in a timer");
      }, 5),
    ),
);
worker.handle("late", () => {
  setTimeout(() => {
    throw new Error("after the end");
  }, 20);
  return "fine";
});
worker.handle("other", async () => {
  await sleep(100);
  return "fine";
});
if (process.argv[2] === "own")
  setTimeout(() => {
    throw new Error("of the program");
  }, 100);
await worker.run({ signal: shutdownSignal() });
process.exit(); // a handler of a run that has failed may still wait
