import assert from "node:assert/strict";
import { createServer, type IncomingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  WorkerService,
  type WorkRequest,
  WorkRequestSchema,
  type WorkResponse,
  WorkResponseSchema,
} from "../src/gen/fermata/v1/worker_service_pb.js";
import { isStatusOfNode, toFermataError } from "../src/client/errors.js";
import { Connection } from "../src/net/connection.js";
import { BidiStream, FrameReader, maxMessageBytes } from "../src/net/stream.js";

function frame(body: Uint8Array, flag = 0, length = body.length): Buffer {
  const prefix = Buffer.alloc(5);
  prefix[0] = flag;
  prefix.writeUInt32BE(length, 1);
  return Buffer.concat([prefix, body]);
}

test("messages are cut out of chunks of any size", () => {
  const bodies = [0, 1, 5, 4096, 70_000, 0, 0, 3].map((size, i) => new Uint8Array(size).fill(i + 1));
  const all = Buffer.concat(bodies.map((body) => frame(body)));
  for (const size of [1, 2, 5, 6, 4095, 16_384, all.length]) {
    const reader = new FrameReader();
    const found: Uint8Array[] = [];
    for (let i = 0; i < all.length; i += size) {
      reader.push(all.subarray(i, i + size));
      for (let m = reader.next(); m; m = reader.next()) found.push(m);
    }
    assert.deepEqual(found.map((m) => Buffer.from(m)), bodies.map((m) => Buffer.from(m)), `chunks of ${size}`);
  }
  for (const wrong of [frame(new Uint8Array(1), 1), frame(new Uint8Array(), 0, maxMessageBytes + 1)]) {
    const reader = new FrameReader();
    reader.push(wrong);
    assert.throws(() => reader.next(), /compressed|bytes/);
  }
});

/** withCall opens a stream to a server that a function plays. */
async function withCall(
  answer: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void,
  use: (call: BidiStream<typeof WorkRequestSchema, typeof WorkResponseSchema>) => Promise<void>,
): Promise<void> {
  const server = createServer();
  server.on("stream", (stream, headers) => {
    stream.on("error", () => {});
    answer(stream, headers);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const connection = await Connection.open(address, { timeoutMs: 30_000 });
  try {
    await use(new BidiStream(connection, WorkerService.method.work, new Headers({ authorization: "Bearer x" })));
  } finally {
    connection.destroy();
    server.close();
  }
}

const grpc = { ":status": 200, "content-type": "application/grpc" };
const addresses = (...list: string[]) =>
  create(WorkResponseSchema, { message: { case: "addresses", value: { addresses: list } } });
const encode = (message: WorkResponse) => frame(toBinary(WorkResponseSchema, message));

test("both sides send messages until one ends the call", async () => {
  const received: WorkRequest[] = [];
  let headers: IncomingHttpHeaders = {};
  const play = (stream: ServerHttp2Stream, got: IncomingHttpHeaders) => {
    headers = got;
    const reader = new FrameReader();
    stream.respond(grpc, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    stream.on("data", (chunk: Buffer) => {
      reader.push(chunk);
      for (let m = reader.next(); m; m = reader.next()) received.push(fromBinary(WorkRequestSchema, m));
    });
    stream.write(Buffer.concat([encode(addresses("a:1")), encode(addresses("b:1"))]));
    stream.on("end", () => stream.end(encode(addresses("c:1"))));
  };
  await withCall(play, async (call) => {
    const got: string[] = [];
    const take = (message: WorkResponse) =>
      void got.push(...(message.message.value as { addresses: string[] }).addresses);
    // The second message waits while the first one is looked at.
    await new Promise<void>((resolve) =>
      call.receive((message) => {
        call.pause();
        take(message);
        resolve();
      }),
    );
    assert.deepEqual(got, ["a:1"]);
    call.receive(take);
    const draining = create(WorkRequestSchema, { message: { case: "draining", value: {} } });
    await new Promise<void>((resolve) => call.write([draining, draining], resolve));
    call.closeSend();
    assert.equal(await call.ended, undefined);
    assert.deepEqual(got, ["a:1", "b:1", "c:1"]);
  });
  assert.equal(received.length, 2);
  assert.equal(headers[":path"], "/fermata.v1.WorkerService/Work");
  assert.equal(headers["authorization"], "Bearer x");
  assert.equal(headers["te"], "trailers");
});

test("a call ends with the reason", async () => {
  const refuse = { ...grpc, "grpc-status": "7", "grpc-message": "no role %E2%82%AC" };
  const cases: [string, (stream: ServerHttp2Stream) => void, RegExp, string, boolean][] = [
    ["a status", (s) => s.respond(refuse, { endStream: true }), /^no role €$/, "PERMISSION_DENIED", true],
    [
      "a status after messages",
      (s) => {
        s.respond(grpc, { waitForTrailers: true });
        s.on("wantTrailers", () => s.sendTrailers({ "grpc-status": "14", "grpc-message": "50%" }));
        s.end(encode(addresses("a:1")));
      },
      /^50%$/,
      "UNAVAILABLE",
      true,
    ],
    [
      "an unknown status",
      (s) => s.respond({ ...grpc, "grpc-status": "99" }, { endStream: true }),
      /^$/,
      "UNKNOWN",
      true,
    ],
    ["a proxy", (s) => s.respond({ ":status": 502 }, { endStream: true }), /HTTP status 502/, "UNAVAILABLE", false],
    [
      "a web page",
      (s) => (s.respond({ ":status": 200, "content-type": "text/html" }), s.end("<html>")),
      /content type "text\/html"/,
      "UNAVAILABLE",
      false,
    ],
    ["no status", (s) => (s.respond(grpc), s.end()), /cut/, "UNAVAILABLE", false],
    ["a reset", (s) => (s.respond(grpc), s.close(2)), /./, "UNAVAILABLE", false],
    ["a lost connection", (s) => s.session!.destroy(), /./, "UNAVAILABLE", false],
    ["no protobuf", (s) => (s.respond(grpc), s.write(frame(new Uint8Array([255])))), /./, "UNAVAILABLE", false],
    ["compression", (s) => (s.respond(grpc), s.write(frame(new Uint8Array(1), 1))), /compressed/, "UNAVAILABLE", false],
  ];
  for (const [name, answer, text, code, ofNode] of cases) {
    await withCall(answer, async (call) => {
      call.receive(() => {});
      const error = await call.ended;
      assert.match(error?.message ?? "", ofNode ? /./ : text, name);
      assert.match(toFermataError(error).message, text, name);
      assert.equal(toFermataError(error).code, code, name);
      assert.equal(isStatusOfNode(error), ofNode, name);
    });
  }
});

test("an error of the receiver ends the call", () =>
  withCall(
    (stream) => (stream.respond(grpc), stream.write(encode(addresses("a:1")))),
    async (call) => {
      call.receive(() => {
        throw new Error("of the receiver");
      });
      assert.equal((await call.ended)?.message, "of the receiver");
    },
  ));
