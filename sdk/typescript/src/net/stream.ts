import type * as http2 from "node:http2";
import {
  type DescMessage,
  type DescMethodBiDiStreaming,
  fromBinary,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { Connection } from "./connection.js";

const prefixBytes = 5;
export const maxMessageBytes = 64 << 20;

/** FrameReader cuts what arrives into messages. Each has a prefix of five bytes: whether it is compressed, and its
 * length. */
export class FrameReader {
  #chunks: Buffer[] = [];
  #size = 0;
  /** #needed is the size from which on there is something to do. */
  #needed = prefixBytes;

  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#size += chunk.length;
  }

  /** next returns the next message; undefined: it has not arrived completely. */
  next(): Uint8Array | undefined {
    while (this.#size >= this.#needed) {
      const data = this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks);
      if (data[0] !== 0) throw new Error("the node has sent a compressed message");
      const end = prefixBytes + data.readUInt32BE(1);
      if (end > prefixBytes + maxMessageBytes) throw new Error(`a message of ${end - prefixBytes} bytes`);
      this.#needed = end;
      this.#chunks = [data];
      if (this.#size < end) return undefined;
      this.#chunks = this.#size === end ? [] : [data.subarray(end)];
      this.#size -= end;
      this.#needed = prefixBytes;
      return data.subarray(prefixBytes, end);
    }
    return undefined;
  }
}

/** BidiStream is a call in which both sides send messages. It does what the transport of @connectrpc/connect-node does,
 * without its chain of asynchronous iterators, in which a message costs many times what its bytes cost. */
export class BidiStream<I extends DescMessage, O extends DescMessage> {
  /** ended resolves with the error of the call; undefined: the node has ended it with the status OK. */
  readonly ended: Promise<Error | undefined>;
  readonly #method: DescMethodBiDiStreaming<I, O>;
  readonly #stream: http2.ClientHttp2Stream;
  readonly #frames = new FrameReader();
  readonly #connection: Connection;
  #receive: ((message: MessageShape<O>) => void) | undefined;
  #end!: (error: Error | undefined) => void;
  /** #failure is why this side has given the call up, #error why the stream was cut. */
  #failure: Error | undefined;
  #error: Error | undefined;
  #trailers: http2.IncomingHttpHeaders | undefined;

  constructor(connection: Connection, method: DescMethodBiDiStreaming<I, O>, headers: Headers) {
    this.#connection = connection;
    this.#method = method;
    this.ended = new Promise((resolve) => (this.#end = resolve));
    const stream = (this.#stream = connection.openStream(`/${method.parent.typeName}/${method.name}`, {
      ...Object.fromEntries(headers),
      "content-type": "application/grpc+proto",
      te: "trailers",
    }));
    stream.on("response", (answer) => this.#checkAnswer(answer));
    stream.on("trailers", (trailers) => (this.#trailers = trailers));
    stream.on("data", (chunk: Buffer) => this.#takeChunk(chunk));
    stream.on("error", (error) => (this.#error ??= error));
    stream.on("end", () => this.#finish());
    stream.on("close", () => this.#finish());
    stream.pause();
  }

  /** receive passes each message to a function, from now on. If that throws, the call ends with the error. */
  receive(take: (message: MessageShape<O>) => void): void {
    this.#receive = take;
    this.#readMessages();
    if (this.#isReceiving) this.#stream.resume();
  }

  get #isReceiving(): boolean {
    return this.#receive !== undefined;
  }

  /** pause stops receiving until receive is called again. */
  pause(): void {
    this.#receive = undefined;
    this.#stream.pause();
  }

  /** write sends messages. The function is called when they are on their way. */
  write(messages: readonly MessageShape<I>[], written: () => void): void {
    const parts: Uint8Array[] = [];
    for (const message of messages) {
      const body = toBinary(this.#method.input, message);
      const prefix = Buffer.alloc(prefixBytes);
      prefix.writeUInt32BE(body.length, 1);
      parts.push(prefix, body);
    }
    this.#stream.write(Buffer.concat(parts), (error) => error || written());
  }

  /** closeSend ends this side. */
  closeSend(): void {
    this.#stream.end();
  }

  #checkAnswer(answer: http2.IncomingHttpHeaders & http2.IncomingHttpStatusHeader): void {
    const status = answer[":status"];
    const type = answer["content-type"] ?? "";
    if (answer["grpc-status"] !== undefined) this.#trailers = answer;
    else if (status !== 200) this.#fail(new Error(`HTTP status ${status}, which no node sends`));
    else if (!/^application\/grpc(\+proto)?(;|$)/.test(type)) this.#fail(new Error(`content type "${type}"`));
  }

  #takeChunk(chunk: Buffer): void {
    this.#connection.notifyResponseByteRead();
    this.#frames.push(chunk);
    this.#readMessages();
  }

  #readMessages(): void {
    try {
      while (this.#receive) {
        const bytes = this.#frames.next();
        if (bytes === undefined) return;
        this.#receive(fromBinary(this.#method.output, bytes));
      }
    } catch (error) {
      this.#fail(error instanceof Error ? error : new Error(String(error)));
    }
  }

  #fail(error: Error): void {
    this.#receive = undefined;
    this.#failure ??= error;
    this.#stream.destroy();
    this.#finish();
  }

  /** #finish resolves ended, which only its first call does. */
  #finish(): void {
    if (this.#failure) this.#end(this.#failure);
    else if (this.#trailers) this.#end(errorOfTrailers(this.#trailers));
    else this.#end(this.#error ?? this.#connection.error ?? new Error("the stream was cut"));
  }
}

/** errorOfTrailers returns the error that a node has ended a call with; undefined: the status is OK. */
function errorOfTrailers(trailers: http2.IncomingHttpHeaders): Error | undefined {
  const status = String(trailers["grpc-status"]);
  if (status === "0") return undefined;
  const code = /^\d+$/.test(status) && Number(status) in Code ? (Number(status) as Code) : Code.Unknown;
  return new ConnectError(decodeText(String(trailers["grpc-message"] ?? "")), code, { "grpc-status": status });
}

function decodeText(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
