// Errors of calls, and what a person can do about each.
import type { RpcStatus } from "./generated";

/** Failure is an error of a call. */
export class Failure extends Error {
  constructor(
    message: string,
    /** status is that of the response; 0: there was no response. */
    readonly status: number,
    /** reason is that of google.rpc.ErrorInfo, such as EVENTS_DISABLED; "" if there is none. */
    readonly reason = "",
    /** fields are the invalid fields, by their names in the API. */
    readonly fields: Record<string, string> = {},
    /** retryAfter is after how many seconds a repetition may help; 0: unknown. */
    readonly retryAfter = 0,
  ) {
    super(message);
  }

  /** isTransient: it may pass by itself. */
  get isTransient(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 502;
  }
}

interface Detail {
  reason?: string;
  fieldViolations?: Array<{ field?: string; description?: string }>;
}

/** failureOf reads the error of a response. */
export function failureOf(response: Response, body: string): Failure {
  let status: RpcStatus = {};
  try {
    status = JSON.parse(body) as RpcStatus;
  } catch {
    status = { message: body.trim().slice(0, 300) };
  }
  const reason = ((status.details ?? []) as Detail[]).find((d) => d.reason)?.reason ?? "";
  const message = status.message || `the response has status ${response.status}`;
  return new Failure(message, response.status, reason, fieldsOf(status.details), Number(response.headers.get("Retry-After")) || 0);
}

/** fieldsOf are the invalid fields that the details of a status name. */
export function fieldsOf(details: RpcStatus["details"]): Record<string, string> {
  const fields: Record<string, string> = {};
  for (const d of (details ?? []) as Detail[]) {
    for (const v of d.fieldViolations ?? []) fields[v.field ?? ""] = v.description ?? "";
  }
  return fields;
}

/** toFailure is any error as a Failure. */
export function toFailure(e: unknown): Failure {
  if (e instanceof Failure) return e;
  if (e instanceof DOMException && e.name === "TimeoutError") {
    return new Failure("The gateway did not answer in time.", 504);
  }
  if (e instanceof TypeError) return new Failure("The gateway cannot be reached.", 0);
  return new Failure(e instanceof Error ? e.message : String(e), 500);
}

/** adviceFor says what a person can do about a failure. */
export function adviceFor(f: Failure): string {
  switch (f.reason) {
    case "EVENTS_DISABLED":
      return "Start the nodes with --events-keep to have events.";
    case "TOO_MANY_TO_SORT":
      return "Name a queue, a state or a namespace in the filter, or sort by the next due time.";
    case "READ_ONLY_CONSOLE":
      return "Use the command line, or a console without --console-read-only.";
  }
  switch (f.status) {
    case 0:
      return "Check the network and the gateway. The console tries again by itself.";
    case 400:
      return "Correct the value and try again.";
    case 401:
      return "Sign in again.";
    case 403:
      return "Ask an administrator for a role that allows it, or choose one of your namespaces.";
    case 404:
      return "It may have been deleted or renamed. Go back to the list.";
    case 409:
      return "The state has changed meanwhile. Look at it again, then repeat the action if it is still right.";
    case 412:
      return "Somebody else has changed it. Load it again: your changes are kept.";
    case 429:
      return "Wait a moment: the caller has reached a limit.";
    case 501:
      return "The nodes are of a version that cannot do this yet: upgrade them.";
    case 502:
    case 503:
      return "No node answers, or Redis cannot be reached. The console tries again by itself.";
    case 504:
      return "It may have had an effect. Repeat it here: a repetition has no second effect.";
  }
  return "Look at the log of the gateway and the node.";
}

/** adviceForAction is adviceFor after an action, which nothing repeats by itself. */
export function adviceForAction(f: Failure): string {
  return f.status === 0 || f.status === 502 || f.status === 503
    ? "Try again when the gateway, the nodes and Redis can be reached: it is done once, even if the response was lost."
    : adviceFor(f);
}
