import { Code, ConnectError } from "@connectrpc/connect";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../gen/google/rpc/error_details_pb.js";
import { toMilliseconds } from "./messages.js";
import { describeError } from "../net/connection.js";

/** ErrorCode is the code of a gRPC status. */
export type ErrorCode =
  | "CANCELLED"
  | "UNKNOWN"
  | "INVALID_ARGUMENT"
  | "DEADLINE_EXCEEDED"
  | "NOT_FOUND"
  | "ALREADY_EXISTS"
  | "PERMISSION_DENIED"
  | "RESOURCE_EXHAUSTED"
  | "FAILED_PRECONDITION"
  | "ABORTED"
  | "OUT_OF_RANGE"
  | "UNIMPLEMENTED"
  | "INTERNAL"
  | "UNAVAILABLE"
  | "DATA_LOSS"
  | "UNAUTHENTICATED";

const codeNames: Record<Code, ErrorCode> = {
  [Code.Canceled]: "CANCELLED",
  [Code.Unknown]: "UNKNOWN",
  [Code.InvalidArgument]: "INVALID_ARGUMENT",
  [Code.DeadlineExceeded]: "DEADLINE_EXCEEDED",
  [Code.NotFound]: "NOT_FOUND",
  [Code.AlreadyExists]: "ALREADY_EXISTS",
  [Code.PermissionDenied]: "PERMISSION_DENIED",
  [Code.ResourceExhausted]: "RESOURCE_EXHAUSTED",
  [Code.FailedPrecondition]: "FAILED_PRECONDITION",
  [Code.Aborted]: "ABORTED",
  [Code.OutOfRange]: "OUT_OF_RANGE",
  [Code.Unimplemented]: "UNIMPLEMENTED",
  [Code.Internal]: "INTERNAL",
  [Code.Unavailable]: "UNAVAILABLE",
  [Code.DataLoss]: "DATA_LOSS",
  [Code.Unauthenticated]: "UNAUTHENTICATED",
};

/** Violation is an invalid field of a request. */
export interface Violation {
  field: string;
  description: string;
}

/** FermataError is the error of a call. */
export class FermataError extends Error {
  override readonly name = "FermataError";
  readonly code: ErrorCode;
  /** violations are the invalid fields of a request, for INVALID_ARGUMENT. */
  readonly violations: readonly Violation[];
  /** reason is for programs, such as "EXCLUDED_TIME" or "EVENTS_GONE". Empty: the error has none. */
  readonly reason: string;
  /** retryAfterMs is when the cluster asks to repeat the call. */
  readonly retryAfterMs: number | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    details: {
      violations?: readonly Violation[];
      reason?: string;
      retryAfterMs?: number | undefined;
      cause?: unknown;
    } = {},
  ) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.violations = details.violations ?? [];
    this.reason = details.reason ?? "";
    this.retryAfterMs = details.retryAfterMs;
  }
}

/** isFermataError reports whether an error is that of a call, and has one of the codes if any are given. */
export function isFermataError(error: unknown, ...codes: ErrorCode[]): error is FermataError {
  return error instanceof FermataError && (codes.length === 0 || codes.includes(error.code));
}

/** toFermataError converts the error of a call. A connection that failed makes it UNAVAILABLE: whatever Node.js or
 * HTTP/2 call the failure, another node may answer. */
export function toFermataError(error: unknown, signal?: AbortSignal): FermataError {
  if (error instanceof FermataError) return error;
  if (!(error instanceof ConnectError)) {
    return new FermataError(signal?.aborted ? "CANCELLED" : "UNAVAILABLE", describeError(error), { cause: error });
  }
  const retry = error.findDetails(RetryInfoSchema)[0];
  return new FermataError(codeOf(error, signal), error.rawMessage, {
    violations: error
      .findDetails(BadRequestSchema)
      .flatMap((d) => d.fieldViolations.map((v) => ({ field: v.field, description: v.description }))),
    reason: error.findDetails(ErrorInfoSchema)[0]?.reason ?? "",
    retryAfterMs: retry && Math.max(0, retry.retryDelay ? toMilliseconds(retry.retryDelay) : 0),
    cause: error,
  });
}

/** localFailures are errors of this process that no other node would change. */
const localFailures: readonly (readonly [RegExp, ErrorCode])[] = [
  [/^serialize /, "INVALID_ARGUMENT"],
  [/^parse /, "INTERNAL"],
  [/is larger than configured /, "RESOURCE_EXHAUSTED"],
];

function codeOf(error: ConnectError, signal?: AbortSignal): ErrorCode {
  if (isStatusOfNode(error)) return codeNames[error.code];
  if (signal?.aborted) return "CANCELLED";
  for (const [text, code] of localFailures) {
    if (text.test(error.rawMessage)) return code;
  }
  return error.code === Code.DeadlineExceeded ? "DEADLINE_EXCEEDED" : "UNAVAILABLE";
}

/** isStatusOfNode reports whether a node has sent the error. Otherwise the connection failed. */
export function isStatusOfNode(error: unknown): boolean {
  return error instanceof ConnectError && error.metadata.has("grpc-status");
}

/** errorOfStatus returns the error of one item of a batch. */
export function errorOfStatus(code: number, message: string, details: ConnectError["details"] = []): FermataError {
  const error = new ConnectError(message, code as Code, { "grpc-status": String(code) });
  error.details = details;
  return toFermataError(error);
}
