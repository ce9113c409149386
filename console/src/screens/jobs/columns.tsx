import type { Job } from "../../api/generated";
import { ErrorText, JobLink } from "../../components/job_link";
import { scheduleText, zoneOfSchedule } from "../../components/schedule_text";
import { BackoffSteps, RunStrip, State, stateOfJob, stateOfOutcome } from "../../components/state";
import type { Column } from "../../components/table";
import { Time } from "../../components/time";

/** jobColumns are the columns of the list of jobs. */
export const jobColumns: Column<Job>[] = [
  { title: "Job", order: "id", cell: (j) => <JobLink name={j.name} /> },
  { title: "State", cell: (j) => <JobState job={j} /> },
  { title: "Schedule", minor: 2, cell: (j) => <span class="clip" title={scheduleText(j.schedule)}>{scheduleText(j.schedule)}</span> },
  { title: "Next due", numeric: true, order: "next_due_time",
    cell: (j) => <Time at={j.status?.nextDueTime} zone={zoneOfSchedule(j.schedule)} both /> },
  { title: "Backoff", minor: 1, cell: (j) => <BackoffSteps job={j} /> },
  { title: "In a row", numeric: true, minor: 1, order: "consecutive_failures desc", cell: (j) => Number(j.status?.consecutiveFailures ?? 0) || "" },
  { title: "Last runs", minor: 2, cell: (j) => <RunStrip runs={j.status?.recentRuns} /> },
  { title: "Last run", minor: 1, order: "last_run_time desc", cell: (j) => <LastRun job={j} /> },
  { title: "Queue", minor: 2, cell: (j) => <bdi>{j.queue}</bdi> },
  { title: "Last error", minor: 2, cell: (j) => <ErrorText text={j.status?.consecutiveFailures ? j.status.lastError : ""} /> },
];

function JobState({ job }: { job: Job }) {
  return (
    <>
      <State {...stateOfJob(job)} />
      {job.status?.pauseNote && <span class="soft clip" title={job.status.pauseNote}> <bdi>{job.status.pauseNote}</bdi></span>}
    </>
  );
}

function LastRun({ job }: { job: Job }) {
  if (!job.status?.lastStartTime) return <span class="soft">never</span>;
  return <span class="nowrap"><State {...stateOfOutcome(job.status.lastOutcome)} /> <span class="soft"><Time at={job.status.lastStartTime} zone={zoneOfSchedule(job.schedule)} /></span></span>;
}
