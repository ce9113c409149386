// A run on a time axis: from its scheduled time, through its attempts and the waits between them, to its end.
import type { Job, Run } from "../../api/generated";
import { State } from "../../components/state";
import { Table, type Column } from "../../components/table";
import { Time } from "../../components/time";
import { formatDuration } from "../../format/duration";
import { plural } from "../../format/text";
import { second, serverNow } from "../../live/clock";
import { attemptsOf, nextWait, type Attempt } from "./attempts";

const width = 720, height = 78, top = 32, thick = 18, middle = top + thick / 2;
/** letter is about how wide a letter of a label is. */
const letter = 5.6;

/** RunAxis draws a run. */
export function RunAxis({ run, job, zone }: { run: Run; job: Job; zone: string | undefined }) {
  if (!run.finishTime) second.value; // a live run grows
  const now = serverNow();
  const attempts = attemptsOf(run, job, now);
  const skipped = Math.max(0, (attempts[0]?.number ?? 1) - 1);
  const due = Date.parse(run.dueTime ?? run.nominalTime ?? "");
  const nominal = Date.parse(run.nominalTime ?? run.dueTime ?? "");
  const first = attempts[0]?.due ?? due;
  const from = skipped > 0 ? first : Math.min(nominal, first);
  const end = run.finishTime ? Date.parse(run.finishTime) : Math.max(now, due);
  const span = Math.max(1, end - from);
  if (Number.isNaN(span)) return null;
  const x = (t: number) => ((Math.min(Math.max(t, from), end) - from) / span) * width;
  const waits = run.state === "STATE_WAITING" || attempts.length === 0;
  const text = describe(attempts, nominal, due, now, waits);
  return (
    <>
      <svg class="chart run-axis" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={text || "not due yet"}>
        <line class="axis" x1="0" x2={width} y1={middle} y2={middle} />
        {first > nominal && skipped === 0 && <Wait from={x(nominal)} to={x(first)} />}
        {attempts.map((a, i) => <Bar key={i} attempt={a} before={attempts[i - 1]} x={x} />)}
        {waits && <Wait from={x(attempts.at(-1)?.end ?? first)} to={x(due)} label={nextWait(run, job)} />}
        {waits && Math.min(end, now) > due && <Late from={x(due)} to={x(Math.min(end, now))} />}
        <text x="0" y="12">{skipped > 0 ? `attempt ${skipped + 1} due` : "scheduled"}</text>
        <text x={width} y="12" text-anchor="end">{run.finishTime ? "ended" : "now"}</text>
        <text x="0" y={height - 6}>{formatDuration(span)} in all</text>
      </svg>
      <p class="soft">{text ? `${text[0]!.toUpperCase()}${text.slice(1)}.` : "It is not due yet."}
        {skipped > 0 && ` The times of the first ${plural(skipped, "attempt")} are not kept.`}</p>
      {attempts.length > 1 && <Table caption="Attempts" columns={columns(zone)} rows={attempts} keyOf={(a) => `${a.number} ${a.start}`} />}
    </>
  );
}

/** Bar is an attempt: the wait before it, how late it started, and the attempt. */
function Bar({ attempt: a, before, x }: { attempt: Attempt; before: Attempt | undefined; x: (t: number) => number }) {
  return (
    <>
      {before && a.due > before.end && <Wait from={x(before.end)} to={x(a.due)} label={a.wait} />}
      {a.start > a.due && <Late from={x(Math.max(a.due, before?.end ?? a.due))} to={x(a.start)} />}
      <rect class={a.state.tone} x={x(a.start)} y={top} width={Math.max(3, x(a.end) - x(a.start))} height={thick} rx="2" />
    </>
  );
}

/** Wait is a planned wait. Its label is left out where there is no room; the table below has it. */
function Wait({ from, to, label }: { from: number; to: number; label?: string }) {
  if (to <= from) return null;
  return (
    <>
      <line class="waited" x1={from} x2={to} y1={middle} y2={middle} />
      {label && label.length * letter < to - from && <text x={(from + to) / 2} y={top - 4} text-anchor="middle">{label}</text>}
    </>
  );
}

const Late = ({ from, to }: { from: number; to: number }) => (
  <rect class="late" x={from} y={middle - 3} width={Math.max(2, to - from)} height="6" />
);

const columns = (zone: string | undefined): Column<Attempt>[] => [
  { title: "Attempt", cell: (a) => a.number },
  { title: "Outcome", cell: (a) => <State {...a.state} /> },
  { title: "Wait before it", minor: 1, cell: (a) => a.wait ?? "" },
  { title: "Started", cell: (a) => <Time at={new Date(a.start).toISOString()} zone={zone} /> },
  { title: "Lag", numeric: true, minor: 2, cell: (a) => formatDuration(Math.max(0, a.start - a.due)) },
  { title: "Took", numeric: true, cell: (a) => formatDuration(a.end - a.start) },
  { title: "Worker", minor: 1, cell: (a) => <bdi class="id">{a.worker}</bdi> },
];

/** describe is the course of a run in words. */
function describe(attempts: Attempt[], nominal: number, due: number, now: number, waits: boolean): string {
  const first = attempts[0], last = attempts.at(-1);
  const firstDue = first?.due ?? due;
  return [
    (first?.number ?? 1) === 1 && firstDue - nominal > 0 && `due ${formatDuration(firstDue - nominal)} after its scheduled time`,
    attempts.length > 1 && `${plural(attempts.length, "attempt")}: ${attempts.map((a) => a.state.text).join(", ")}`,
    last && `the ${attempts.length > 1 ? "last " : ""}attempt started ${formatDuration(Math.max(0, last.start - last.due))} after its due time`,
    last && (last.isLive ? `and has run for ${formatDuration(last.end - last.start)}` : `and took ${formatDuration(last.end - last.start)}`),
    waits && now > due && `has waited ${formatDuration(now - due)} since its due time`,
  ].filter(Boolean).join(", ");
}
