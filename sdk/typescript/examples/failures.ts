/** The three ways to fail: as usual, for good, and with a delay of the handler's choice. */
import { Permanent, RetryAfter, Worker } from "@fermata-io/fermata/worker";

const worker = new Worker({ addresses: process.env["FERMATA_ADDRESS"] ?? "127.0.0.1:7070", queues: ["crawl"] });

worker.handle("fetch-page", async (task) => {
  const { url } = task.json<{ url: string }>(); // a payload that is not JSON ends the run
  const response = await fetch(url, { signal: task.signal });
  if (response.status === 404 || response.status === 410) throw new Permanent(`${url} is gone`);
  if (response.status === 429 || response.status === 503) {
    throw new RetryAfter(`${url} asks for a pause`, `${Number(response.headers.get("retry-after")) || 60}s`);
  }
  if (!response.ok) throw new Error(`${url} answers ${response.status}`); // the retry policy decides
  return { status: response.status, bytes: (await response.arrayBuffer()).byteLength };
});

await worker.runUntilShutdown();
