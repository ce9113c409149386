// The only place that sends requests. Paths are relative to the page, so that the console works below any base path.
import { failureOf, toFailure } from "./errors";
import { methods, type MethodName, type MethodTypes } from "./generated";
import { noteServerTime } from "../live/clock";

export type Params<M extends MethodName> = MethodTypes[M]["params"];
export type Body<M extends MethodName> = MethodTypes[M]["body"];
export type Result<M extends MethodName> = MethodTypes[M]["response"];

/** CallOptions are what a call may have beside its parameters. */
export interface CallOptions {
  signal?: AbortSignal;
  /** etag: only if the job still has this version. */
  etag?: string;
  /** requestId: a repetition with the same id has no second effect. */
  requestId?: string;
}

/** apiBase is the URL below which the gateway serves, with a slash at its end. */
export const apiBase = new URL(".", document.baseURI.replace(/[?#].*$/, "")).href;

/** callTimeout is longer than that of the gateway, so that its error arrives. */
const callTimeout = 40_000;

type Value = string | number | boolean | string[] | Record<string, string> | undefined;

/** pathOf is the path of a call with its query. The most specific path is taken whose parameters are given. */
export function pathOf(name: MethodName, params: object): string {
  const values = params as Record<string, Value>;
  const paths = methods[name].paths;
  const isGiven = (path: string) => [...path.matchAll(/\{(\w+)\}/g)].every((m) => values[m[1]!] !== undefined);
  const template = paths.filter(isGiven).at(-1) ?? paths[0]!;
  const inPath = new Set<string>();
  const path = template.replace(/\{(\w+)\}/g, (_, key: string) => {
    inPath.add(key);
    return encodeURIComponent(String(values[key]));
  });
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (inPath.has(key) || value === undefined || value === "") continue;
    if (Array.isArray(value)) value.forEach((v) => query.append(key, v));
    else if (typeof value === "object") Object.entries(value).forEach(([k, v]) => query.append(`${key}[${k}]`, v));
    else query.append(key, String(value));
  }
  const text = query.toString();
  return path.slice(1) + (text ? `?${text}` : "");
}

/** call calls a method of the API. It throws a Failure. */
export async function call<M extends MethodName>(
  name: M, params: Params<M>, body?: Body<M>, options: CallOptions = {},
): Promise<Result<M>> {
  const timeout = AbortSignal.timeout(callTimeout);
  const session = sessions;
  const init: RequestInit = {
    method: methods[name].verb,
    headers: headersOf(body, options),
    signal: options.signal ? AbortSignal.any([options.signal, timeout]) : timeout,
    credentials: "same-origin",
    redirect: "error",
  };
  if (body !== undefined) init.body = JSON.stringify(body);
  try {
    let response = await send(apiBase + pathOf(name, params), init);
    if (response.status === 401 && await refresh()) response = await send(apiBase + pathOf(name, params), init);
    const text = await response.text();
    if (!response.ok) throw failureOf(response, text);
    return (text ? JSON.parse(text) : {}) as Result<M>;
  } catch (e) {
    if (options.signal?.aborted) throw e;
    const failure = toFailure(e);
    if (failure.status === 401 && session === sessions) onSignedOut();
    throw failure;
  }
}

async function send(url: string, init: RequestInit): Promise<Response> {
  const sent = Date.now();
  const response = await fetch(url, init);
  noteServerTime(response.headers.get("Date"), sent, Date.now());
  return response;
}

function headersOf(body: unknown, options: CallOptions): Record<string, string> {
  const headers: Record<string, string> = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (options.etag) headers["If-Match"] = `"${options.etag}"`;
  if (options.requestId) headers["X-Request-Id"] = options.requestId;
  return headers;
}

let refresh = (): Promise<boolean> => Promise.resolve(false);

/** whenExpired sets how a credential that is no longer accepted is replaced; true: the call is sent again. */
export function whenExpired(f: () => Promise<boolean>): void {
  refresh = f;
}

/** sessions counts the sessions of this page: what was sent in an earlier one says nothing of the present one. */
let sessions = 0;

/** noteSession is called when a credential was accepted. */
export function noteSession(): void {
  sessions++;
}

let onSignedOut = () => {};

/** whenSignedOut sets what is done when a credential is missing or no longer accepted. */
export function whenSignedOut(f: () => void): void {
  onSignedOut = f;
}
