// Upcoming: what runs next, over all jobs on one axis.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call } from "../../api/client";
import { jobFilterFields, type UpcomingRun } from "../../api/generated";
import { linkTo, listLink, namespace, place, setQuery } from "../../app/routes";
import type { Screen } from "../../app/screen";
import { FilterBar } from "../../components/filter_bar";
import { JobLink } from "../../components/job_link";
import { Empty, Loaded } from "../../components/messages";
import { State, type StateWord } from "../../components/state";
import { Table, type Column } from "../../components/table";
import { Time } from "../../components/time";
import { wordsOf } from "../../format/text";
import { useQuery } from "../../live/query";
import { DayAxis } from "./day_axis";

const pageSize = 100;

const sourceWords: Record<string, StateWord> = {
  DELAY_SOURCE_BACKOFF: { tone: "hold", text: "backs off" }, DELAY_SOURCE_RETRY: { tone: "retry", text: "retries" },
  DELAY_SOURCE_HINT: { tone: "wait", text: "hint" }, DELAY_SOURCE_MANUAL: { tone: "wait", text: "manual" },
  DELAY_SOURCE_CATCH_UP: { tone: "wait", text: "catches up" }, DELAY_SOURCE_BACKFILL: { tone: "wait", text: "backfill" },
  DELAY_SOURCE_REDRIVE: { tone: "wait", text: "redriven" },
};

function stateOfUpcoming(r: UpcomingRun): StateWord {
  if (r.queuePaused) return { tone: "idle", text: "queue paused" };
  if (r.hold?.reason) return { tone: "hold", text: `${wordsOf(r.hold.reason, "REASON_")}${r.hold.key ? ` ${r.hold.key}` : ""}` };
  return sourceWords[r.delaySource ?? ""] ?? { tone: "wait", text: "by its schedule" };
}

const columns: Column<UpcomingRun>[] = [
  { title: "Job", cell: (r) => <JobLink name={r.name} /> },
  { title: "Due", numeric: true, cell: (r) => <Time at={r.dueTime} zone={r.timeZone} both /> },
  { title: "Because", cell: (r) => <State {...stateOfUpcoming(r)} /> },
  { title: "Scheduled", numeric: true, minor: 1, cell: (r) => <Time at={r.nominalTime} zone={r.timeZone} /> },
  { title: "Attempt", numeric: true, minor: 2, cell: (r) => ((r.attempt ?? 1) > 1 ? r.attempt : "") },
  { title: "Queue", minor: 1, cell: (r) => <bdi>{r.queue}</bdi> },
  { title: "Handler", minor: 2, cell: (r) => <bdi>{r.handler}</bdi> },
  { title: "Zone", minor: 2, cell: (r) => r.timeZone },
];

function Upcoming() {
  const ns = namespace.value;
  const { filter = "", held = "" } = place.value.query;
  const pages = useSignal<string[]>([""]);
  const view = `${ns}\n${filter}\n${held}`;
  useEffect(() => { pages.value = [""]; }, [view]);
  const token = pages.value.at(-1)!;
  const list = useQuery(`upcoming\n${view}\n${token}`, (signal) => call("ListUpcomingJobs",
    { namespace: ns, filter, excludeHeld: held === "no" || undefined, pageSize, pageToken: token }, undefined, { signal }));
  const invalid = list.error.value?.status === 400 ? list.error.value.message : undefined;
  return (
    <>
      <h1>Upcoming</h1>
      <DayAxis />
      <FilterBar label="Filter upcoming runs" value={filter} fields={jobFilterFields} error={invalid}
        placeholder="A word of the id or handler, or: queue = mail AND next_due_time < 1h"
        onChange={(value) => setQuery({ filter: value || undefined })} />
      <div class="chips" role="group" aria-label="Held runs">
        <a class="chip" aria-current={held === "" ? "true" : undefined} href={linkTo(["upcoming"], { ...place.value.query, held: undefined })}>All</a>
        <a class="chip" aria-current={held === "no" ? "true" : undefined} href={linkTo(["upcoming"], { ...place.value.query, held: "no" })}>Without held runs</a>
      </div>
      {invalid ? null : (
        <Loaded query={list} lines={10} what="The upcoming runs">
          {(d) => (d.runs ?? []).length === 0
            ? <Empty title="Nothing is planned"><p>Jobs with a schedule have their next run here. <a href={listLink("jobs", {})}>All jobs</a></p></Empty>
            : (
              <>
                <Table caption="Upcoming runs" columns={columns} rows={d.runs!} keyOf={(r) => r.name ?? ""} />
                <p class="soft">A job is listed once, with its next run. {d.incomplete && "Incomplete: the search took too long."}</p>
                <div class="buttons">
                  <button type="button" disabled={pages.value.length === 1} onClick={() => { pages.value = pages.value.slice(0, -1); }}>Sooner</button>
                  <button type="button" disabled={!d.nextPageToken} onClick={() => { pages.value = [...pages.value, d.nextPageToken!]; }}>Later</button>
                </div>
              </>
            )}
        </Loaded>
      )}
    </>
  );
}

export const upcomingScreen: Screen = { path: "upcoming", title: () => "Upcoming", nav: "Upcoming", key: "u", view: Upcoming };
