// Schedules in words, as they were written: nothing is computed here.
import type { Schedule } from "../api/generated";
import { formatSpan } from "../format/duration";
import { plural } from "../format/text";

/** zoneOfSchedule is the zone of a schedule; undefined if it has none. */
export const zoneOfSchedule = (s: Schedule | undefined): string | undefined =>
  s?.cron?.timeZone || s?.calendar?.timeZone || undefined;

const unitNouns: Record<string, string> = { UNIT_DAY: "day", UNIT_WEEK: "week", UNIT_MONTH: "month" };

/** scheduleText is a schedule on one line. */
export function scheduleText(s: Schedule | undefined): string {
  const zone = zoneOfSchedule(s);
  const end = zone ? ` ${zone}` : "";
  if (s?.cron) return (s.cron.expressions ?? []).join("; ") + end;
  if (s?.interval) return `every ${formatSpan(s.interval.every)}${s.interval.fixedDelay ? " after the last end" : ""}`;
  if (s?.once) return "once";
  if (s?.calendar) {
    const c = s.calendar;
    const days = [...(c.weekdays ?? []), ...(c.monthDays ?? []).map(String)].join(", ");
    return `every ${plural(c.every || 1, unitNouns[c.unit ?? ""] ?? "period").replace(/^1 /, "")}`
      + `${days ? ` on ${days}` : ""}${c.times?.length ? ` at ${c.times.join(", ")}` : ""}${end}`;
  }
  return "on demand";
}
