// A run on a time axis: from its scheduled time, through its waits, to the end of its last attempt.
import type { Run } from "../../api/generated";
import { stateOfRun } from "../../components/state";
import { formatDuration } from "../../format/duration";
import { plural } from "../../format/text";
import { second, serverNow } from "../../live/clock";

const width = 720, height = 64, top = 22, thick = 18;

/** RunAxis draws a run. Nodes keep the times of the last attempt only. */
export function RunAxis({ run }: { run: Run }) {
  if (!run.finishTime) second.value; // a live run grows
  const nominal = Date.parse(run.nominalTime ?? run.dueTime ?? "");
  const due = run.dueTime ? Date.parse(run.dueTime) : nominal;
  const now = serverNow();
  const start = run.startTime ? Date.parse(run.startTime) : undefined;
  const end = run.finishTime ? Date.parse(run.finishTime) : Math.max(now, due);
  const from = Math.min(nominal, due, start ?? due);
  const span = Math.max(1, end - from);
  if (Number.isNaN(span)) return null;
  const x = (t: number) => ((Math.min(Math.max(t, from), end) - from) / span) * width;
  const until = start ?? Math.min(end, now);
  const parts = [
    due - nominal > 0 && `due ${formatDuration(due - nominal)} after its scheduled time`,
    start !== undefined && `the last attempt started ${formatDuration(Math.max(0, start - due))} after its due time`,
    start !== undefined && (run.finishTime ? `and took ${formatDuration(end - start)}` : `and has run for ${formatDuration(end - start)}`),
    start === undefined && until > due && `has waited ${formatDuration(until - due)} since its due time`,
  ].filter(Boolean).join(", ");
  return (
    <>
      <svg class="chart run-axis" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={parts || "not due yet"}>
        <line class="axis" x1="0" x2={width} y1={top + thick / 2} y2={top + thick / 2} />
        {due > nominal && <line class="waited" x1={x(nominal)} x2={x(due)} y1={top + thick / 2} y2={top + thick / 2} />}
        {until > due && <rect class="late" x={x(due)} y={top + thick / 2 - 3} width={Math.max(2, x(until) - x(due))} height="6" />}
        {start !== undefined && <rect class={stateOfRun(run).tone} x={x(start)} y={top} width={Math.max(3, x(end) - x(start))} height={thick} rx="2" />}
        <text x="0" y="12">scheduled</text>
        <text x={width} y="12" text-anchor="end">{run.finishTime ? "ended" : "now"}</text>
        <text x="0" y={height - 6}>{formatDuration(span)} in all</text>
      </svg>
      <p class="soft">{parts ? `${parts[0]!.toUpperCase()}${parts.slice(1)}.` : "It is not due yet."}
        {(run.attempts ?? 0) > 1 && ` It took ${plural(run.attempts, "attempt")}; the times are those of the last one.`}</p>
    </>
  );
}
