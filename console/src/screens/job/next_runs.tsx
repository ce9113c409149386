import type { Job, PreviewScheduleResponse } from "../../api/generated";
import { zoneOfSchedule } from "../../components/schedule_text";
import { Time } from "../../components/time";
import { formatDuration } from "../../format/duration";

/** movedBy says what has set the due time of the planned run in place of the schedule. */
const movedBy: Record<string, string> = {
  DELAY_SOURCE_BACKOFF: "end of the backoff", DELAY_SOURCE_RETRY: "next attempt", DELAY_SOURCE_HINT: "hint",
  DELAY_SOURCE_MANUAL: "manual run", DELAY_SOURCE_CATCH_UP: "catch-up", DELAY_SOURCE_BACKFILL: "backfill",
  DELAY_SOURCE_REDRIVE: "redrive", DELAY_SOURCE_HELD: "looked at again",
};

/** NextRuns are the next times of the schedule, as the server computes them, with what a clock change does to them. */
export function NextRuns({ job, preview }: { job: Job; preview: PreviewScheduleResponse }) {
  const status = job.status ?? {};
  const moved = movedBy[status.delaySource ?? ""];
  const all = preview.times ?? [];
  const times = moved && status.nextDueTime ? all.filter((t) => Date.parse(t.dueTime ?? "") > Date.parse(status.nextDueTime!)) : all;
  const zone = zoneOfSchedule(job.schedule);
  if (all.length === 0) return <p class="soft">{job.schedule ? "The schedule has no further time." : "It runs on request only."}</p>;
  return (
    <>
      {job.status?.pauseTime && <p class="soft">The job is paused: none of these runs until it is resumed.</p>}
      <ol class="times">
        {moved && status.nextDueTime && <li><Time at={status.nextDueTime} zone={zone} both /><span class="soft"> {moved}</span></li>}
        {times.map((t) => {
          const jitter = Date.parse(t.latestDueTime ?? "") - Date.parse(t.nominalTime ?? "");
          return (
            <li key={t.nominalTime}>
              <Time at={t.dueTime ?? t.nominalTime} zone={zone} both />
              {jitter > 0 && <span class="soft"> jitter up to {formatDuration(jitter)}</span>}
              {t.dstNote && <span class="state hold square">{t.dstNote}</span>}
            </li>
          );
        })}
      </ol>
      {zone && <p class="soft">Schedule in {zone}.</p>}
    </>
  );
}
