import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { Result_Outcome } from "../gen/fermata/v1/worker_service_pb.js";
import {
  type AttemptEnded,
  isPermanent,
  Permanent,
  requestedDelay,
  RetryAfter,
  AttemptEnded as Ended,
} from "./errors.js";
import { clipText, maxErrorBytes, outputBytes } from "./output.js";
import type { Task } from "./task.js";

/** HandlerEnd is how a handler ended. */
export interface HandlerEnd {
  /** failed is true if it threw. */
  failed: boolean;
  /** value is what it returned or threw. */
  value: unknown;
  /** cause is why it had to end; undefined: it had not. */
  cause: AttemptEnded | undefined;
  tookMs: number;
}

/** AttemptResult is the reported result of an attempt. */
export interface AttemptResult {
  outcome: Result_Outcome;
  error: string;
  output: Uint8Array | undefined;
  /** retryAfterMs is the requested delay; 0: none. */
  retryAfterMs: number;
  tookMs: number;
}

const outcomeNames: Partial<Record<Result_Outcome, string>> = {
  [Result_Outcome.FAILED]: "failed",
  [Result_Outcome.FAILED_PERMANENTLY]: "failed permanently",
  [Result_Outcome.TIMED_OUT]: "timed out",
  [Result_Outcome.CANCELLED]: "cancelled",
};

/** outcomeName returns the name of a failure for the log. */
export function outcomeName(end: HandlerEnd): string {
  if (end.cause?.kind === "lease-lost") return "lease lost";
  if (end.cause?.kind === "worker-stops") return "worker stops";
  return outcomeNames[outcomeOf(end)] ?? "succeeded";
}

function outcomeOf(end: HandlerEnd): Result_Outcome {
  if (!end.failed) return Result_Outcome.SUCCEEDED;
  switch (end.cause?.kind) {
    case "lease-lost":
    case "worker-stops":
      return Result_Outcome.FAILED; // not reported: the attempt is no failure of the handler
    default:
  }
  if (isPermanent(end.value)) return Result_Outcome.FAILED_PERMANENTLY;
  switch (end.cause?.kind) {
    case "timeout":
      return Result_Outcome.TIMED_OUT;
    case "cancelled":
      return Result_Outcome.CANCELLED;
    default:
      return Result_Outcome.FAILED;
  }
}

/** resultOf returns the result to report. An output that cannot be encoded fails the attempt. */
export function resultOf(task: Task, end: HandlerEnd): AttemptResult {
  let { failed, value } = end;
  let output = task.output;
  if (!failed) {
    try {
      output = outputBytes(value) ?? output;
    } catch (error) {
      failed = true;
      value = error;
      end.failed = true;
      end.value = error;
    }
  }
  return {
    outcome: outcomeOf(end),
    output,
    tookMs: end.tookMs,
    error: failed ? errorText(value) : "",
    retryAfterMs: failed ? (requestedDelay(value) ?? 0) : 0,
  };
}

/** errorText returns a text that is never empty and fits in a stored error: the message, and for what the handler did
 * not announce the top of the stack. */
export function errorText(error: unknown): string {
  try {
    const message = clipText(messageOf(error), maxErrorBytes);
    if (isAnnounced(error) || !(error instanceof Error)) return message;
    const frames = stackFrames(error);
    return frames.length === 0 ? message : clipText(`${message} at ${frames.join(" < ")}`, maxErrorBytes);
  } catch {
    return "the handler threw a value that has no text";
  }
}

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return `thrown: ${typeof error === "symbol" ? error.toString() : String(error)}`;
  if (isAnnounced(error) && error.message) return error.message;
  return error.message
    ? error.name === "Error"
      ? error.message
      : `${error.name}: ${error.message}`
    : error.name || "Error";
}

function isAnnounced(error: unknown): boolean {
  return error instanceof Permanent || error instanceof RetryAfter || error instanceof Ended;
}

const maxFrames = 8;

function stackFrames(error: Error): string[] {
  const frames: string[] = [];
  for (const line of (error.stack ?? "").split("\n")) {
    const match = /^\s+at (?:(.*?) \()?(?:file:\/\/)?([^()]+?):(\d+):\d+\)?$/.exec(line);
    if (!match || match[2]!.startsWith("node:")) continue;
    if (match[2]!.startsWith(workerFiles)) break;
    frames.push(`${match[1] ?? "anonymous"} (${basename(match[2]!)}:${match[3]})`);
    if (frames.length === maxFrames) break;
  }
  return frames;
}

/** workerFiles is the directory of the worker: what is below its modules on a stack is not the handler's. */
const workerFiles = fileURLToPath(new URL(".", import.meta.url));

/** errorName returns the name of an error for the log, which must not contain what a handler has put into its text. */
export function errorName(error: unknown): string {
  if (!(error instanceof Error)) return typeof error;
  const name = error.constructor.name;
  return /^[\w$]{1,64}$/.test(name) ? name : "Error";
}
