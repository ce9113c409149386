// The times of a schedule on a day and on a year, with clock changes.
import type { ScheduledTime } from "../../api/generated";
import type { ClockChange } from "../../format/clock_changes";
import { formatDuration } from "../../format/duration";
import { formatCount, plural } from "../../format/text";
import { formatFull, formatMinute, formatTime } from "../../format/time";

const width = 640;
const day = 86_400_000;

const timeOf = (t: ScheduledTime) => Date.parse(t.nominalTime ?? "");
const byText = (c: ClockChange) => `clocks ${c.by > 0 ? "forward" : "back"} ${formatDuration(c.by)}`;

export interface YearStripProps {
  times: ScheduledTime[];
  from: number;
  /** count is how many times were asked for. */
  count: number;
  changes: ClockChange[];
  zone: string;
}

/** YearStrip are the runs of each day of a year. */
export function YearStrip({ times, from, count, changes, zone }: YearStripProps) {
  const height = 92, base = 70, days = 365;
  const x = (t: number) => ((t - from) / (days * day)) * width;
  const counts = Array.from({ length: days }, () => 0);
  for (const t of times) {
    const i = Math.floor((timeOf(t) - from) / day);
    if (i < days) counts[i]!++;
  }
  const isCut = times.length === count && timeOf(times.at(-1)!) < from + days * day;
  const end = isCut ? timeOf(times.at(-1)!) : from + days * day;
  const most = Math.max(1, ...counts);
  const seen = times.filter((t) => timeOf(t) < from + days * day).length;
  const finding = `${isCut ? "The first " : ""}${plural(seen, "run")} of a year, at most ${formatCount(most)} in 24 hours`
    + `${changes.map((c) => `; ${byText(c)} on ${formatFull(c.at, zone)}`).join("")}.`;
  const labels = [0, 1, 2, 3, 4].map((n) => from + (n / 4) * days * day);
  return (
    <svg class="chart" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={finding}>
      <line class="axis" x1="0" y1={base} x2={width} y2={base} />
      {counts.map((n, i) => n > 0 && <rect key={i} class="bar" x={x(from + i * day)} width={width / days - 0.6} y={base - (n / most) * 48} height={(n / most) * 48} />)}
      {isCut && <>
        <rect class="beyond" x={x(end)} y="20" width={width - x(end)} height={base - 20} />
        <text x={Math.max(4, Math.min(x(end) + 6, width - 220))} y="44">after {formatCount(count)} runs the preview ends</text>
      </>}
      {changes.map((c) => (
        <g key={c.at} class="clock-change">
          <line x1={x(c.at)} x2={x(c.at)} y1="16" y2={base} />
          <text x={Math.min(Math.max(x(c.at), 90), width - 90)} y="12" text-anchor="middle">{byText(c)}</text>
        </g>
      ))}
      {labels.map((t, n) => (
        <text key={n} x={x(t)} y={height - 6} text-anchor={n === 0 ? "start" : n === 4 ? "end" : "middle"}>{formatTime(t, 0, zone).replace(/ \d\d:.*$/, "")}</text>
      ))}
    </svg>
  );
}

export interface DayStripProps {
  times: ScheduledTime[];
  /** gone are times that an edit removes or moves away. */
  gone: ScheduledTime[];
  from: number;
  changes: ClockChange[];
  zone: string;
}

/** DayStrip are the runs of 24 hours with their windows of jitter; if there is none, the 24 hours around the first. */
export function DayStrip({ times, gone, from, changes, zone }: DayStripProps) {
  const height = 76, top = 18, base = 54;
  const first = Math.min(...[...times, ...gone].slice(0, 1).map(timeOf));
  const start = first < from + day ? from : first - day / 2;
  const end = start + day;
  const isIn = (t: ScheduledTime) => timeOf(t) >= start && timeOf(t) < end;
  const x = (t: number) => ((t - start) / day) * width;
  const shown = times.filter(isIn), lost = gone.filter(isIn), clock = changes.filter((c) => c.at > start && c.at < end);
  const windows = shown.map((t) => Date.parse(t.latestDueTime ?? "") - timeOf(t));
  const finding = `${plural(shown.length, "run")} in the 24 hours from ${formatFull(start, zone)}`
    + `${Math.max(0, ...windows) > 0 ? `, each spread over up to ${formatDuration(Math.max(...windows))}` : ""}`
    + `${lost.length ? `; ${lost.length} of before the edit are no longer there` : ""}${clock.map((c) => `; ${byText(c)}`).join("")}.`;
  const labels = [0, 1, 2, 3, 4].map((n) => start + (n / 4) * day);
  return (
    <svg class="chart" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={finding}>
      <line class="axis" x1="0" y1={base} x2={width} y2={base} />
      {shown.map((t, i) => windows[i]! > 0 && <rect key={i} class="window" x={x(timeOf(t))} width={Math.max(1, (windows[i]! / day) * width)} y={top + 8} height={base - top - 8} />)}
      {shown.map((t) => <rect key={t.nominalTime} class="bar" x={x(timeOf(t)) - 1} width="2" y={top + 2} height={base - top - 2} />)}
      {lost.map((t) => <line key={t.nominalTime} class="lost-time" x1={x(timeOf(t))} x2={x(timeOf(t))} y1={top + 2} y2={base} />)}
      {clock.map((c) => (
        <g key={c.at} class="clock-change">
          <line x1={x(c.at)} x2={x(c.at)} y1={top} y2={base} />
          <text x={Math.min(Math.max(x(c.at), 90), width - 90)} y="12" text-anchor="middle">{byText(c)}</text>
        </g>
      ))}
      {labels.map((t, n) => (
        <text key={n} x={x(t)} y={height - 6} text-anchor={n === 0 ? "start" : n === 4 ? "end" : "middle"}>{n === 0 ? formatTime(t, 0, zone) : formatMinute(t, zone)}</text>
      ))}
    </svg>
  );
}
