// The window of the list of runs, as it is in the link: instants, or how long ago.
import { serverNow } from "../../live/clock";
import { parseInput } from "../../format/duration";

/** quickWindows are windows that people need often. */
export const quickWindows = [
  { name: "last hour", since: "1h" }, { name: "last 24 hours", since: "24h" }, { name: "last 7 days", since: "7d" },
  { name: "all that are kept", since: "all" },
];

/** defaultSince is the window without a choice. */
export const defaultSince = "24h";

/** startOf is the instant of a start as the link has it; undefined: no bound. */
export function startOf(since: string): string | undefined {
  const ago = parseInput(since);
  return ago === undefined ? instantOf(since) : new Date(serverNow() - ago).toISOString();
}

/** instantOf is an instant that somebody may have typed into the link; undefined: it is none. */
export function instantOf(text: string | undefined): string | undefined {
  const time = Date.parse(text ?? "");
  return Number.isNaN(time) ? undefined : new Date(time).toISOString();
}

/** toInput is an instant as the value of a field of date and time, in the zone of this machine. */
export function toInput(instant: string | undefined): string {
  if (!instant) return "";
  const d = new Date(instant);
  return new Date(d.getTime() - d.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
