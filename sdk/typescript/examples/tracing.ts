/** The W3C trace context goes in with the call that causes a run, and comes out at its handler. With the OpenTelemetry
 * SDK, pass what `propagation.inject` writes, and give `task.traceparent` to `propagation.extract`. */
import { randomBytes } from "node:crypto";
import { Fermata } from "@fermata-io/fermata";
import { Worker } from "@fermata-io/fermata/worker";

const addresses = process.env["FERMATA_ADDRESS"] ?? "127.0.0.1:7070";
const fermata = await Fermata.connect({ addresses });

const worker = new Worker({ addresses, queues: ["traced"] });
worker.handle("traced", (task) => {
  console.log(
    task.traceparent ? `in trace ${task.traceparent.split("-")[1]}` : "not traced: the nodes export no spans",
  );
});
const working = worker.run();

const traceparent = `00-${randomBytes(16).toString("hex")}-${randomBytes(8).toString("hex")}-01`;
await fermata.jobs.create("traced", { queue: "traced", handler: "traced" }, { traceparent });
await fermata.jobs.run("traced", { traceparent, wait: "1m" });

worker.stop();
await working;
await fermata.close();
