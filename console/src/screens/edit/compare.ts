// What an edit of a schedule does to its next times. All times are those of two previews of the nodes.
import type { ScheduledTime } from "../../api/generated";

/** Change says what becomes of one time. */
export interface Change {
  kind: "stays" | "moved" | "added" | "gone";
  time: ScheduledTime;
  /** before is where a moved time was. */
  before?: ScheduledTime;
}

const timeOf = (t: ScheduledTime) => Date.parse(t.nominalTime ?? "");

function medianGap(times: ScheduledTime[]): number {
  const gaps = times.slice(1).map((t, i) => timeOf(t) - timeOf(times[i]!)).sort((a, b) => a - b);
  return gaps[gaps.length >> 1] ?? 86_400_000;
}

/** endOf is until when a preview of this count has all times. */
const endOf = (times: ScheduledTime[], count: number) => (times.length < count ? Infinity : timeOf(times.at(-1)!));

/**
 * compareTimes compares two previews that begin at the same instant, as far as both reach. A time has moved if the
 * nearest new one is closer than half of what usually lies between two times.
 */
export function compareTimes(before: ScheduledTime[], after: ScheduledTime[], count: number): Change[] {
  const nearness = Math.min(medianGap(before), medianGap(after)) / 2;
  // Near the end of one preview the partner of a time may be missing.
  const end = Math.min(endOf(before, count), endOf(after, count)) - nearness;
  const times = new Set(after.map(timeOf));
  const kept = new Set(before.map(timeOf).filter((t) => times.has(t)));
  return mergeTimes(before, after, kept, nearness).filter((c) => timeOf(c.before ?? c.time) < end);
}

function mergeTimes(old: ScheduledTime[], now: ScheduledTime[], kept: Set<number>, nearness: number): Change[] {
  const changes: Change[] = [];
  let i = 0, k = 0;
  while (i < old.length || k < now.length) {
    const a = old[i] && timeOf(old[i]!), b = now[k] && timeOf(now[k]!);
    if (a !== undefined && a === b) {
      changes.push({ kind: "stays", time: now[k]! });
      i++, k++;
    } else if (a !== undefined && b !== undefined && !kept.has(a) && !kept.has(b) && Math.abs(a - b) < nearness) {
      changes.push({ kind: "moved", time: now[k]!, before: old[i] });
      i++, k++;
    } else if (b === undefined || a !== undefined && a < b) {
      changes.push({ kind: "gone", time: old[i++]! });
    } else {
      changes.push({ kind: "added", time: now[k++]! });
    }
  }
  return changes;
}
