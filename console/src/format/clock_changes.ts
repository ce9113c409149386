// Clock changes of a zone, to mark them beside the times that the nodes compute.

/** ClockChange is an instant at which the offset of a zone changes. */
export interface ClockChange {
  at: number;
  /** by is how far clocks are put forward, in milliseconds; negative: back. */
  by: number;
}

const formats = new Map<string, Intl.DateTimeFormat | undefined>();

/** offsetOf is the offset of a zone from UTC in milliseconds; undefined: this browser does not know the zone. */
function offsetOf(time: number, zone: string): number | undefined {
  if (!formats.has(zone)) {
    try {
      formats.set(zone, new Intl.DateTimeFormat("en-GB", { timeZone: zone, timeZoneName: "longOffset" }));
    } catch {
      formats.set(zone, undefined);
    }
  }
  const name = formats.get(zone)?.formatToParts(time).find((p) => p.type === "timeZoneName")?.value;
  const m = name?.match(/^GMT(?:([+-])(\d\d):(\d\d)(?::(\d\d))?)?$/);
  if (!m) return undefined;
  const size = ((Number(m[2] ?? 0) * 60 + Number(m[3] ?? 0)) * 60 + Number(m[4] ?? 0)) * 1000;
  return m[1] === "-" ? -size : size;
}

/** clockChanges are those of a zone between two times. */
export function clockChanges(zone: string, from: number, to: number): ClockChange[] {
  const changes: ClockChange[] = [];
  const step = 7 * 86_400_000;
  for (let low = from; low < to; low += step) {
    const before = offsetOf(low, zone), after = offsetOf(low + step, zone);
    if (before === undefined || after === undefined || before === after) continue;
    let a = low, b = low + step;
    while (b - a > 1000) {
      const middle = Math.floor((a + b) / 2000) * 1000;
      if (middle <= a) break;
      if (offsetOf(middle, zone) === before) a = middle; else b = middle;
    }
    if (b < to) changes.push({ at: Math.round(b / 1000) * 1000, by: after - before });
  }
  return changes;
}
