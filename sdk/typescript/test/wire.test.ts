import assert from "node:assert/strict";
import { createServer, type IncomingHttpHeaders } from "node:http2";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { Fermata } from "../src/index.js";

/** withNode serves answers with these statuses, one after the other and the last one for all further calls, and
 * collects the headers of calls. */
async function withNode(
  statuses: Record<string, string>[],
  use: (address: string, calls: IncomingHttpHeaders[]) => Promise<void>,
): Promise<void> {
  const calls: IncomingHttpHeaders[] = [];
  const server = createServer();
  server.on("stream", (stream, headers) => {
    const answer = statuses[Math.min(calls.length, statuses.length - 1)];
    calls.push(headers);
    stream.on("error", () => {}); // of a call that was cut off
    stream.respond({ ":status": 200, "content-type": "application/grpc+proto", ...answer }, { endStream: true });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await use(`127.0.0.1:${(server.address() as AddressInfo).port}`, calls);
  } finally {
    server.close();
  }
}

const notFound = { "grpc-status": "5", "grpc-message": "no such%20job" };

test("a call carries the token and the trace context of its caller", () =>
  withNode([notFound], async (addresses, calls) => {
    let n = 0;
    const fermata = await Fermata.connect({ addresses, token: () => `token-${++n}` });
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const options = { traceparent, tracestate: "vendor=1" };
    await assert.rejects(fermata.jobs.get("a", options), { code: "NOT_FOUND", message: "no such job" });
    await assert.rejects(fermata.jobs.get("b", { tracestate: "vendor=1" }), { code: "NOT_FOUND" });
    assert.deepEqual(
      calls.map((c) => [c["authorization"], c["traceparent"], c["tracestate"], c[":path"]]),
      [
        ["Bearer token-1", traceparent, "vendor=1", "/fermata.v1.JobService/GetJob"],
        ["Bearer token-2", undefined, undefined, "/fermata.v1.JobService/GetJob"],
      ],
    );
    await fermata.close();
    const broken = Fermata.create({ addresses, token: "a\nb" });
    await assert.rejects(broken.jobs.get("a"), { code: "UNAUTHENTICATED" });
    await broken.close();
  }));

test("a call is repeated while a node is unavailable, and no longer than allowed", () =>
  withNode([{ "grpc-status": "14" }, { "grpc-status": "14" }, notFound], async (addresses, calls) => {
    const fermata = await Fermata.connect({ addresses });
    await assert.rejects(fermata.jobs.get("a"), { code: "NOT_FOUND" });
    assert.equal(calls.length, 3);
    await fermata.close();
  }));

test("attempts are bounded, and other errors are not repeated", async () => {
  await withNode([{ "grpc-status": "14", "grpc-message": "down" }], async (addresses, calls) => {
    const fermata = await Fermata.connect({ addresses, attempts: 2 });
    await assert.rejects(fermata.jobs.run("a"), { code: "UNAVAILABLE", message: "down" });
    assert.equal(calls.length, 2);
    await fermata.close();
  });
  for (const [status, code] of Object.entries({
    3: "INVALID_ARGUMENT",
    7: "PERMISSION_DENIED",
    10: "ABORTED",
    13: "INTERNAL",
  })) {
    await withNode([{ "grpc-status": status }], async (addresses, calls) => {
      const fermata = await Fermata.connect({ addresses });
      await assert.rejects(fermata.jobs.pause("a"), { code });
      assert.equal(calls.length, 1);
      await fermata.close();
    });
  }
});

test("a request that cannot be encoded is refused at once", () =>
  withNode([notFound], async (addresses, calls) => {
    const fermata = await Fermata.connect({ addresses });
    const page = fermata.jobs.list({ pageSize: 1.5 }).next();
    await assert.rejects(page, { code: "INVALID_ARGUMENT" });
    assert.ok(calls.length <= 1);
    await fermata.close();
  }));
