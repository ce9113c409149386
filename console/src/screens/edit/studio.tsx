// Schedule studio: what a schedule does, and what an edit changes, as the nodes compute it.
import { useMemo, useState } from "preact/hooks";
import { call } from "../../api/client";
import type { PreviewScheduleResponse, Schedule, ScheduledTime } from "../../api/generated";
import { Card } from "../../components/card";
import { Failed } from "../../components/messages";
import { zoneOfSchedule } from "../../components/schedule_text";
import { Time } from "../../components/time";
import { clockChanges, type ClockChange } from "../../format/clock_changes";
import { formatDuration } from "../../format/duration";
import { plural } from "../../format/text";
import { formatFull, formatTime, zoneFor } from "../../format/time";
import { serverNow } from "../../live/clock";
import { compareTimes, type Change } from "./compare";
import { useLatest } from "./latest";
import { DayStrip, YearStrip } from "./strips";

export interface StudioProps {
  /** job is the resource name, whose `H` values and jitter are used; "" if it is not known yet. */
  job: string;
  /** schedule is that of the form. */
  schedule: Schedule | undefined;
  /** before is that of the stored job, if the form edits one. */
  before: Schedule | undefined;
}

const yearCount = 1000, dayCount = 300, listed = 12;
const day = 86_400_000;

interface Previews {
  from: number;
  after: PreviewScheduleResponse;
  before?: PreviewScheduleResponse;
}

/** Studio shows the next times of a schedule, its day and its year, and what an edit of it changes. */
export function Studio({ job, schedule, before }: StudioProps) {
  const [begin, setBegin] = useState<number>(); // of the day that is shown; undefined: now
  const isEdited = before !== undefined && JSON.stringify(before) !== JSON.stringify(schedule);
  const key = schedule ? JSON.stringify([job, schedule, isEdited && before]) : "";
  const load = async (from: number, count: number, signal: AbortSignal): Promise<Previews> => {
    const preview = (s: Schedule | undefined) => call("PreviewSchedule", {},
      { schedule: s, job: job || undefined, count, after: new Date(from).toISOString() }, { signal });
    const old = isEdited ? await preview(undefined) : undefined; // by its own schedule, with the phase that it has
    return { from, after: await preview(inPhase(schedule!, before, old)), before: old };
  };
  const year = useLatest(key, (signal) => load(serverNow(), yearCount, signal));
  const there = useLatest(key && begin ? `${key}${begin}` : "", (signal) => load(begin!, dayCount, signal));
  const jobZone = zoneOfSchedule(schedule) ?? schedule?.exclusions?.timeZone;
  const zone = zoneFor(jobZone);
  const from = year.data?.from ?? 0;
  const changes = useMemo(() => (from && jobZone ? clockChanges(jobZone, from, from + 366 * day) : []), [from, jobZone]);
  if (!schedule) return <Card title="Schedule studio"><p class="soft">It runs on request only: there are no times to show.</p></Card>;
  const shown = begin ? there : year;
  const count = begin ? dayCount : yearCount;
  return (
    <Card title="Schedule studio" note={zone}>
      <div class={`studio${year.isOld ? " old" : ""}`} aria-busy={year.isOld}>
        {year.failure && <Failed failure={year.failure} what="The preview" />}
        {!year.data && !year.failure && <p class="soft">The nodes compute the times.</p>}
        {year.data && (
          <>
            <h3>The year</h3>
            <YearStrip times={year.data.after.times ?? []} from={from} count={yearCount} changes={changes} zone={zone} />
            <Days changes={changes} zone={zone} begin={begin} onChoose={setBegin} />
            {shown.data && <Day previews={shown.data} count={count} changes={changes} jobZone={jobZone} zone={zone} isEdited={isEdited} />}
          </>
        )}
      </div>
    </Card>
  );
}

/**
 * inPhase is a schedule as it will run after the edit. The phase of an interval begins anew at an edit, as in a preview,
 * unless nothing but the jitter changes.
 */
function inPhase(schedule: Schedule, before: Schedule | undefined, old: PreviewScheduleResponse | undefined): Schedule {
  const plain = (s: Schedule | undefined) => JSON.stringify({ ...s, jitter: undefined });
  const first = old?.times?.[0]?.nominalTime;
  return schedule.interval && first && plain(schedule) === plain(before) ? { ...schedule, startTime: first } : schedule;
}

/** Days chooses the day that is shown: now, or that of a clock change. */
function Days({ changes, zone, begin, onChoose }: {
  changes: ClockChange[]; zone: string; begin: number | undefined; onChoose: (begin: number | undefined) => void;
}) {
  const options = [{ text: "From now", begin: undefined as number | undefined },
    ...changes.map((c) => ({ text: `Clocks ${c.by > 0 ? "forward" : "back"}, ${formatTime(c.at, 0, zone).replace(/ \d\d:\d\d(:\d\d)?$/, "")}`, begin: c.at - day / 2 }))];
  return (
    <div class="chips" role="group" aria-label="Day that is shown">
      {options.map((o) => (
        <button key={o.text} type="button" class="chip" aria-pressed={begin === o.begin} onClick={() => onChoose(o.begin)}>{o.text}</button>
      ))}
    </div>
  );
}

function Day({ previews, count, changes, jobZone, zone, isEdited }: {
  previews: Previews; count: number; changes: ClockChange[]; jobZone: string | undefined; zone: string; isEdited: boolean;
}) {
  const times = previews.after.times ?? [];
  const compared = isEdited && previews.before ? compareTimes(previews.before.times ?? [], times, count) : undefined;
  if (times.length === 0 && !compared?.length) return <p>The schedule has no further time.</p>;
  return (
    <>
      <h3>The day</h3>
      <DayStrip times={times} gone={(compared ?? []).filter((c) => c.kind === "gone" || c.kind === "moved").map((c) => c.before ?? c.time)}
        from={previews.from} changes={changes} zone={zone} />
      {compared ? <Difference changes={compared} zone={jobZone} /> : <Times times={times} zone={jobZone} />}
    </>
  );
}

function Times({ times, zone }: { times: ScheduledTime[]; zone: string | undefined }) {
  return (
    <>
      <h3>Next times</h3>
      <ol class="times">{times.slice(0, listed).map((t) => <li key={t.nominalTime}><OneTime time={t} zone={zone} /></li>)}</ol>
    </>
  );
}

function OneTime({ time, zone }: { time: ScheduledTime; zone: string | undefined }) {
  const window = Date.parse(time.latestDueTime ?? "") - Date.parse(time.nominalTime ?? "");
  return (
    <>
      <Time at={time.nominalTime} zone={zone} both />
      {window > 0 && <span class="soft">starts within {formatDuration(window)}</span>}
      {time.dstNote && <span class="state hold square">{time.dstNote}</span>}
    </>
  );
}

const marks: Record<Change["kind"], { tone: string; word: string }> = {
  stays: { tone: "idle ring", word: "stays" }, moved: { tone: "hold square", word: "moves" },
  added: { tone: "ok dot", word: "is added" }, gone: { tone: "bad triangle", word: "disappears" },
};

/** Difference says what an edit does to the next times. */
function Difference({ changes, zone }: { changes: Change[]; zone: string | undefined }) {
  const number = (kind: Change["kind"]) => changes.filter((c) => c.kind === kind).length;
  const [moved, added, gone] = [number("moved"), number("added"), number("gone")];
  const last = changes.at(-1)?.time.nominalTime;
  const first = Math.max(0, changes.findIndex((c) => c.kind !== "stays"));
  const part = changes.slice(Math.max(0, first - 2), Math.max(0, first - 2) + listed);
  const text = moved + added + gone === 0
    ? "The edit changes none of these times."
    : `The edit moves ${plural(moved, "run")}, adds ${added} and removes ${gone}; ${number("stays")} stay as they are.`;
  return (
    <>
      <h3>Before and after</h3>
      <p role="status" class="finding"><b>{text}</b>{last && <span class="soft"> Until {formatFull(Date.parse(last), zoneFor(zone))}.</span>}</p>
      <ol class="times">
        {part.map((c) => (
          <li key={c.kind + c.time.nominalTime} class={c.kind}>
            <span class={`state ${marks[c.kind].tone}`}>{marks[c.kind].word}</span>
            {c.before && <><del><Time at={c.before.nominalTime} zone={zone} /></del> to</>}
            {c.kind === "gone" ? <del><Time at={c.time.nominalTime} zone={zone} /></del> : <OneTime time={c.time} zone={zone} />}
          </li>
        ))}
      </ol>
      {changes.length > part.length && <p class="soft">{plural(changes.length, "time")} in all, {part.length} shown.</p>}
    </>
  );
}
