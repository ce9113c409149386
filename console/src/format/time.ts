// Times in the zone that was chosen. The browser formats times; it never computes those of schedules.
import { settings } from "../app/settings";

const styles = {
  zone: { timeZoneName: "short", hour: "numeric" },
  date: { year: "numeric", month: "2-digit", day: "2-digit" },
  clock: { hour: "2-digit", minute: "2-digit", second: "2-digit" },
  minute: { hour: "2-digit", minute: "2-digit" },
  near: { weekday: "short", day: "numeric", month: "short" },
  far: { day: "numeric", month: "short", year: "numeric" },
  full: { weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" },
  exact: {
    weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
    fractionalSecondDigits: 3,
  },
} satisfies Record<string, Intl.DateTimeFormatOptions>;

const formats = new Map<string, Intl.DateTimeFormat>();

function formatOf(zone: string, style: keyof typeof styles): Intl.DateTimeFormat {
  const key = `${style} ${zone}`;
  let f = formats.get(key);
  if (!f) {
    const options = styles[style];
    try {
      f = new Intl.DateTimeFormat("en-GB", { ...options, timeZone: zone, hourCycle: "h23" });
    } catch { // a zone that this browser does not know
      f = new Intl.DateTimeFormat("en-GB", { ...options, timeZone: "UTC", hourCycle: "h23" });
    }
    formats.set(key, f);
  }
  return f;
}

/** localZone is the zone of this machine. */
export const localZone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

/** zoneFor is the zone in which a time is shown; jobZone is that of the job's schedule. */
export function zoneFor(jobZone?: string): string {
  switch (settings.zone.value) {
    case "utc":
      return "UTC";
    case "job":
      return jobZone || localZone;
    default:
      return localZone;
  }
}

/** zoneLabel is the short name of a zone at a time: CET, GMT+5:30. */
export function zoneLabel(time: number, zone: string): string {
  const parts = formatOf(zone, "zone").formatToParts(time);
  return parts.find((p) => p.type === "timeZoneName")?.value ?? zone;
}

function dayOf(time: number, zone: string): string {
  return formatOf(zone, "date").format(time);
}

/** formatTime is a time as short as its distance allows: 20:31:04, Mon 7 Dec 09:00, 29 Mar 2027 02:00. */
export function formatTime(time: number, now: number, zone: string): string {
  const clock = formatOf(zone, "clock").format(time);
  if (dayOf(time, zone) === dayOf(now, zone)) return clock;
  const isNear = Math.abs(time - now) < 180 * 86_400_000;
  const day = formatOf(zone, isNear ? "near" : "far").format(time).replace(",", "");
  return `${day} ${clock.endsWith(":00") ? clock.slice(0, 5) : clock}`;
}

/** formatMinute is hours and minutes, for axes. */
export const formatMinute = (time: number, zone: string): string =>
  formatOf(zone, "minute").format(time);

/** formatFull is a time with date, milliseconds if it has any, and zone. */
export function formatFull(time: number, zone: string): string {
  const text = formatOf(zone, time % 1000 ? "exact" : "full").format(time);
  return `${text} ${zoneLabel(time, zone)}`;
}
