import {
  type DescField,
  type DescMessage,
  type DescOneof,
  create,
  isMessage,
  type Message,
  type MessageInitShape,
  type MessageShape,
  ScalarType,
} from "@bufbuild/protobuf";
import {
  type Duration,
  DurationSchema,
  type Timestamp,
  TimestampSchema,
  timestampDate,
  timestampFromDate,
} from "@bufbuild/protobuf/wkt";
import { suggestName } from "../options.js";

/** DurationInput is a number of milliseconds, a text such as "90s" or "1h30m", or a message. */
export type DurationInput = number | string | Duration;

/** TimeInput is a date or a message. */
export type TimeInput = Date | Timestamp;

/** Input is what a caller writes for a message: a part of its fields, with durations and times as above. A text in
 * place of bytes is sent as UTF-8. */
export type Input<T> = T extends Duration
  ? DurationInput
  : T extends Timestamp
    ? TimeInput
    : T extends Uint8Array
      ? Uint8Array | string
      : T extends bigint
        ? bigint | number
        : T extends { case: infer C extends string; value: infer V }
          ? { case: C; value: Input<V> }
          : T extends { case: undefined }
            ? T
            : T extends readonly (infer E)[]
              ? readonly Input<E>[]
              : T extends Message
                ? { [K in keyof T as K extends `$${string}` ? never : K]?: Input<T[K]> | undefined }
                : T;

/** toMessage makes a message of an input. It throws for a field that the message does not have. */
export function toMessage<D extends DescMessage>(schema: D, input: Input<MessageShape<D>>): MessageShape<D> {
  return create(schema, initOf(schema, input as object) as MessageInitShape<D>);
}

function initOf(schema: DescMessage, input: object): object {
  if (isMessage(input)) return input;
  if (schema.typeName === DurationSchema.typeName) return toDuration(input as unknown as DurationInput);
  if (schema.typeName === TimestampSchema.typeName) return toTimestamp(input as TimeInput);
  const out: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(input)) {
    if (value === undefined || name.startsWith("$")) continue;
    const member = schema.members.find((m) => m.localName === name);
    if (!member) {
      const names = schema.members.map((m) => m.localName);
      throw new TypeError(`${schema.name} has no field ${JSON.stringify(name)}${suggestName(name, names)}`);
    }
    out[name] = member.kind === "oneof" ? oneofInit(member, value as OneofInput) : fieldInit(member, value);
  }
  return out;
}

type OneofInput = { case?: string; value?: unknown };

function oneofInit(oneof: DescOneof, input: OneofInput): OneofInput {
  const field = oneof.fields.find((f) => f.localName === input.case);
  return field ? { case: field.localName, value: fieldInit(field, input.value) } : { case: undefined };
}

function fieldInit(field: DescField, value: unknown): unknown {
  switch (field.fieldKind) {
    case "message":
      return isWrittenAsJson(field.message) ? value : initOf(field.message, value as object);
    case "list":
      if (field.listKind !== "message") return value;
      return (value as object[]).map((v) => initOf(field.message, v));
    case "scalar":
      if (field.scalar === ScalarType.BYTES) return toBytes(field.localName, value);
      return field.scalar === ScalarType.INT64 || field.scalar === ScalarType.UINT64 ? BigInt(value as number) : value;
    default:
      return value;
  }
}

/** isWrittenAsJson reports whether values of a message are written in another way than by its fields. */
function isWrittenAsJson(message: DescMessage): boolean {
  return (
    message.typeName.startsWith("google.protobuf.") &&
    message.typeName !== DurationSchema.typeName &&
    message.typeName !== TimestampSchema.typeName
  );
}

/** toBytes returns bytes as they are, and a text as UTF-8. It throws for other values. */
export function toBytes(name: string, input: unknown): Uint8Array<ArrayBuffer> {
  if (typeof input === "string") return new TextEncoder().encode(input);
  if (input instanceof Uint8Array) return input as Uint8Array<ArrayBuffer>;
  throw new TypeError(`${name}: want a text, bytes, or json(value) for a value as JSON`);
}

/** toDuration makes a message of a duration. */
export function toDuration(input: DurationInput): Duration {
  if (typeof input === "object") return input;
  return durationOf(toMilliseconds(input));
}

/** maxTimerMs is the longest time of a timer of Node.js, 24.8 days. A longer one ends at once. */
export const maxTimerMs = 2 ** 31 - 1;

/** maxDurationMs is that of the protobuf type. */
const maxDurationMs = 315_576_000_000_000;

/** durationOf makes a message of milliseconds and their fraction. */
export function durationOf(ms: number): Duration {
  const nanos = Math.round((Math.min(Math.max(ms, -maxDurationMs), maxDurationMs) % 1000) * 1e6);
  const seconds = Math.trunc(Math.min(Math.max(ms, -maxDurationMs), maxDurationMs) / 1000);
  const carry = Math.trunc(nanos / 1e9);
  return create(DurationSchema, { seconds: BigInt(seconds + carry), nanos: nanos - carry * 1e9 });
}

/** toTimestamp makes a message of a time. */
export function toTimestamp(input: TimeInput): Timestamp {
  return input instanceof Date ? timestampFromDate(input) : input;
}

const unitMs: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** toMilliseconds returns a duration as a number of milliseconds. */
export function toMilliseconds(input: DurationInput): number {
  if (typeof input === "object") return Number(input.seconds) * 1000 + input.nanos / 1e6;
  const ms = typeof input === "number" ? input : parseDuration(input);
  if (!Number.isFinite(ms)) throw new TypeError(`${JSON.stringify(input)} is not a duration such as "90s" or "1h30m"`);
  return ms;
}

function parseDuration(text: string): number {
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text)) return NaN;
  return [...text.matchAll(/([\d.]+)(ms|s|m|h|d)/g)].reduce((sum, [, n, unit]) => sum + Number(n) * unitMs[unit!]!, 0);
}

/** toDate returns the time of a message as a date; undefined: it is not set. */
export function toDate(time: Timestamp | undefined): Date | undefined {
  return time && timestampDate(time);
}
