import { ActionButton } from "../../actions/button";
import { cancelRun } from "../../actions/jobs";
import type { Job, Run } from "../../api/generated";
import { runLink } from "../../app/routes";
import { ErrorText } from "../../components/job_link";
import { zoneOfSchedule } from "../../components/schedule_text";
import { State, stateOfRun } from "../../components/state";
import { Table, type Column } from "../../components/table";
import { Time } from "../../components/time";
import { formatDuration } from "../../format/duration";
import { wordsOf } from "../../format/text";
import { serverNow } from "../../live/clock";

/** Runs are the live and the kept runs of a job, the newest first. */
export function Runs({ job, runs }: { job: Job; runs: Run[] }) {
  const started = runs.filter((r) => r.startTime);
  if (started.length === 0 && runs.length === 0) return <p class="soft">It has not run yet.</p>;
  const axis = axisOf(started);
  const zone = zoneOfSchedule(job.schedule);
  const columns: Column<Run>[] = [
    { title: "Scheduled", cell: (r) => <a href={runLink(r.name)}><Time at={r.nominalTime} zone={zone} /></a> },
    { title: "Outcome", cell: (r) => <State {...stateOfRun(r)} /> },
    { title: "Timeline", minor: 1, cell: (r) => <Timeline run={r} axis={axis} /> },
    { title: "Lag", numeric: true, minor: 1, cell: (r) => lagOf(r) },
    { title: "Took", numeric: true, cell: (r) => tookOf(r) },
    { title: "Attempts", numeric: true, minor: 2, cell: (r) => r.attempts ?? 0 },
    { title: "Trigger", minor: 2, cell: (r) => wordsOf(r.trigger, "TRIGGER_") + (r.ownPayload ? ", own payload" : "") },
    { title: "Worker", minor: 2, cell: (r) => <bdi class="id">{r.worker}</bdi> },
    { title: "Error", minor: 1, cell: (r) => r.state === "STATE_FINISHED" ? <ErrorText text={r.error} /> : <ActionButton action={cancelRun} subject={{ job, run: r }} /> },
  ];
  return <Table caption="Runs" columns={columns} rows={runs} keyOf={(r) => r.name ?? ""} />;
}

/** lagOf is how long after its due time the last attempt started. */
export const lagOf = (r: Run): string =>
  r.startTime && r.dueTime ? formatDuration(Math.max(0, Date.parse(r.startTime) - Date.parse(r.dueTime))) : "";

/** tookOf is how long the last attempt took, or takes. */
export const tookOf = (r: Run): string =>
  r.startTime ? formatDuration((r.finishTime ? Date.parse(r.finishTime) : serverNow()) - Date.parse(r.startTime)) : "";

interface Axis {
  from: number;
  to: number;
}

function axisOf(runs: Run[]): Axis {
  const times = runs.flatMap((r) => [r.nominalTime, r.startTime, r.finishTime]).filter(Boolean).map((t) => Date.parse(t!));
  return { from: Math.min(...times), to: Math.max(...times, ...(runs.some((r) => !r.finishTime) ? [serverNow()] : [])) };
}

const width = 200;

/** Timeline is a run on the axis of all: the wait from its scheduled time, then the attempt. */
function Timeline({ run, axis }: { run: Run; axis: Axis }) {
  if (!run.startTime) return null;
  const x = (t: number) => ((t - axis.from) / Math.max(1, axis.to - axis.from)) * (width - 6);
  const nominal = x(Date.parse(run.nominalTime ?? run.startTime));
  const start = x(Date.parse(run.startTime));
  const end = x(run.finishTime ? Date.parse(run.finishTime) : axis.to);
  return (
    <svg class="timeline" viewBox={`0 0 ${width} 14`} aria-hidden="true">
      <line class="waited" x1={Math.min(nominal, start)} x2={start} y1="7" y2="7" />
      <rect class={stateOfRun(run).tone} x={start} y="1" width={Math.max(3, end - start)} height="12" rx="1" />
    </svg>
  );
}
