// What people type into the forms of actions.
import { Failure } from "../api/errors";
import { parseInput } from "../format/duration";
import type { Values } from "./action";

/** durationOf reads a duration of a form in milliseconds. It throws a Failure that names the field. */
export function durationOf(v: Values, name: string, label: string): number {
  const ms = parseInput(v[name] ?? "");
  if (ms === undefined || ms <= 0) throw new Failure(`${label}: want a duration such as 5m or 90s`, 400);
  return ms;
}

/** instantOf reads a time of a form, which is in the zone of this machine. It throws a Failure that names the field. */
export function instantOf(v: Values, name: string, label: string): string {
  const time = new Date(v[name] ?? "");
  if (Number.isNaN(time.getTime())) throw new Failure(`${label}: want a date and a time`, 400);
  return time.toISOString();
}
