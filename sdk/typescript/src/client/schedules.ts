import { type Schedule, CalendarSchedule_Unit } from "../gen/fermata/v1/job_pb.js";
import type { DurationInput, Input, TimeInput } from "./messages.js";

/** ScheduleInput is a schedule as callers write it. More fields can be added: `{ ...cron("0 7 * * *"), jitter: "30s"
 * }`. */
export type ScheduleInput = Input<Schedule>;

/** cron is a schedule of one or more cron expressions, with five fields each or @daily and the like, in an IANA time
 * zone. Default UTC. */
export function cron(expressions: string | readonly string[], timeZone = ""): ScheduleInput {
  const list = typeof expressions === "string" ? [expressions] : expressions;
  return { rule: { case: "cron", value: { expressions: list, timeZone } } };
}

/** every is a schedule with a fixed rate: a late run does not move the next one. */
export function every(interval: DurationInput): ScheduleInput {
  return { rule: { case: "interval", value: { every: interval } } };
}

/** fixedDelay is a schedule whose next run is due so long after the end of the previous one. */
export function fixedDelay(delay: DurationInput): ScheduleInput {
  return { rule: { case: "interval", value: { every: delay, fixedDelay: true } } };
}

/** once is a schedule with a single run at a time, or at once if that has passed. */
export function once(time: TimeInput): ScheduleInput {
  return { rule: { case: "once", value: time } };
}

/** everyDays is a schedule at local times, such as "09:00", on every n-th day, in an IANA time zone. */
export function everyDays(n: number, times: readonly string[], timeZone = ""): ScheduleInput {
  return { rule: { case: "calendar", value: { every: n, unit: CalendarSchedule_Unit.DAY, times, timeZone } } };
}

/** everyWeeks is a schedule at local times on days, such as "MON", of every n-th week. */
export function everyWeeks(
  n: number,
  weekdays: readonly string[],
  times: readonly string[],
  timeZone = "",
): ScheduleInput {
  const value = { every: n, unit: CalendarSchedule_Unit.WEEK, weekdays, times, timeZone };
  return { rule: { case: "calendar", value } };
}

/** everyMonths is a schedule at local times on days of every n-th month: 1 to 31, or -1 (the last day) to -31. */
export function everyMonths(
  n: number,
  days: readonly number[],
  times: readonly string[],
  timeZone = "",
): ScheduleInput {
  const value = { every: n, unit: CalendarSchedule_Unit.MONTH, monthDays: days, times, timeZone };
  return { rule: { case: "calendar", value } };
}

/** json encodes a value as JSON, for the payload of a job. */
export function json(value: unknown): Uint8Array<ArrayBuffer> {
  const encoded = JSON.stringify(value) as string | undefined;
  if (encoded === undefined) throw new TypeError("the value has no JSON");
  return text(encoded);
}

/** text encodes a text as UTF-8, for the payload of a job. */
export function text(value: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(value);
}
