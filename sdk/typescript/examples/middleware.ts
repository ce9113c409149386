/** Middleware runs around every handler: to log, to measure, or to open what all of them need. */
import { type Middleware, Worker } from "@fermata-io/fermata/worker";

const measure: Middleware = async (task, next) => {
  const start = performance.now();
  try {
    return await next();
  } finally {
    console.log(`${task.handler} took ${Math.round(performance.now() - start)} ms in attempt ${task.attempt}`);
  }
};

/** requireTenant refuses runs that no handler should see. */
const requireTenant: Middleware = async (task, next) => {
  if (!task.labels["tenant"]) throw new Error("the job has no label tenant");
  return next();
};

const worker = new Worker({ addresses: process.env["FERMATA_ADDRESS"] ?? "127.0.0.1:7070", queues: ["tenants"] });
worker.use(measure, requireTenant); // the first one is outermost
worker.handle("bill", (task) => `billed ${task.labels["tenant"]}`);
await worker.runUntilShutdown();
