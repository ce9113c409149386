import type { Job, Queue, TopJob } from "../../api/generated";
import { ErrorText, JobLink } from "../../components/job_link";
import { zoneOfSchedule } from "../../components/schedule_text";
import { BackoffSteps, RunStrip, State, stateOfJob, type StateWord } from "../../components/state";
import { Table, type Column } from "../../components/table";
import { Time } from "../../components/time";
import { formatSpan } from "../../format/duration";

const keyOf = (t: TopJob) => t.job?.name ?? "";

const failingColumns: Column<Job>[] = [
  { title: "Job", cell: (j) => <JobLink name={j.name} /> },
  { title: "Last runs", minor: 1, cell: (j) => <RunStrip runs={j.status?.recentRuns} /> },
  { title: "In a row", numeric: true, minor: 1, cell: (j) => j.status?.consecutiveFailures ?? "0" },
  { title: "Backoff", cell: (j) => <BackoffSteps job={j} /> },
  { title: "Next", numeric: true, cell: (j) => <Time at={j.status?.nextDueTime} zone={zoneOfSchedule(j.schedule)} /> },
  { title: "Last error", minor: 1, cell: (j) => <ErrorText text={j.status?.lastError} /> },
];

/** Failing are the jobs that have failed most often in a row. */
export function Failing({ jobs }: { jobs: Job[] }) {
  if (jobs.length === 0) return <p class="soft">No job fails.</p>;
  return <Table caption="Failing jobs" columns={failingColumns} rows={jobs} keyOf={(j) => j.name ?? ""} />;
}

/** Late are the runs that wait longest, or started latest. */
export function Late({ jobs, queues }: { jobs: TopJob[]; queues: Queue[] | undefined }) {
  if (jobs.length === 0) return <p class="soft">No run is late.</p>;
  const columns: Column<TopJob>[] = [
    { title: "Job", cell: (t) => <JobLink name={t.job?.name} /> },
    { title: "Queue", minor: 1, cell: (t) => <bdi>{t.job?.queue}</bdi> },
    { title: "Late by", numeric: true, cell: (t) => formatSpan(t.lag) },
    { title: "Because", cell: (t) => <State {...causeOf(t, queues ?? [])} /> },
  ];
  return <Table caption="Late jobs" columns={columns} rows={jobs} keyOf={keyOf} />;
}

function causeOf(t: TopJob, queues: Queue[]): StateWord {
  if (!t.waiting) return { tone: "idle", text: "has started meanwhile" };
  const state = stateOfJob(t.job ?? {});
  if (state.tone === "hold") return state;
  const queue = queues.find((q) => q.queue === t.job?.queue && t.job?.name?.startsWith(`namespaces/${q.namespace}/`));
  if (queue?.queuePaused) return { tone: "idle", text: `queue ${queue.queue} is paused` };
  if (queue && Number(queue.workers ?? 0) === 0) return { tone: "bad", text: `no worker serves ${queue.queue}` };
  if (queue && Number(queue.freeSlots ?? 0) === 0) return { tone: "hold", text: "no slot is free" };
  return { tone: "wait", text: "waits for its start" };
}
