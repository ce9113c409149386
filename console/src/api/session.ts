// The session of this browser: the gateway keeps the token in a cookie that no script can read.
import { apiBase, whenExpired } from "./client";
import { failureOf, toFailure } from "./errors";

const path = "console/session";

async function send(method: string, suffix = "", body?: unknown): Promise<void> {
  try {
    const response = await fetch(apiBase + path + suffix, {
      method, credentials: "same-origin", headers: body ? { "Content-Type": "application/json" } : {},
      body: body ? JSON.stringify(body) : undefined, signal: AbortSignal.timeout(30_000),
    });
    if (!response.ok) throw failureOf(response, await response.text());
  } catch (e) {
    throw toFailure(e);
  }
}

/** beginSession signs in with a token. It throws a Failure. */
export const beginSession = (token: string): Promise<void> => send("POST", "", { token });

/** endSession signs out. It throws a Failure. */
export const endSession = (): Promise<void> => send("DELETE");

/** signInAddress is where the sign-in at the issuer begins. */
export const signInAddress = `${apiBase}console/sign-in`;

let refreshing: Promise<boolean> | undefined;

/** refreshSession asks for a new token, once for all calls that wait for it. false: somebody has to sign in. */
function refreshSession(): Promise<boolean> {
  refreshing ??= send("POST", "/refresh").then(() => true, () => false).finally(() => { refreshing = undefined; });
  return refreshing;
}

/** refreshExpiredSessions has calls refresh the session when nodes no longer accept its token. */
export const refreshExpiredSessions = (): void => whenExpired(refreshSession);
