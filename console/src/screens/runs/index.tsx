// Runs of all jobs: what ended within a window, and how. Such as: what failed between 02:00 and 03:00?
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { call } from "../../api/client";
import { jobFilterFields, type ListRunsResponse, type Outcome, type Run } from "../../api/generated";
import { listLink, namespace, place, runLink, setQuery } from "../../app/routes";
import type { Screen } from "../../app/screen";
import { Card, Sentence } from "../../components/card";
import { FilterBar } from "../../components/filter_bar";
import { ErrorText, JobLink } from "../../components/job_link";
import { Empty, Loaded } from "../../components/messages";
import { State, stateOfOutcome } from "../../components/state";
import { Table, type Column } from "../../components/table";
import { TextFilter } from "../../components/text_filter";
import { Time } from "../../components/time";
import { plural, wordsOf } from "../../format/text";
import { useQuery } from "../../live/query";
import { tookOf } from "../job/runs";
import { countBy, type RunGroup } from "./groups";
import { defaultSince, instantOf, quickWindows, startOf, toInput } from "./window";
import "./runs.css";

const pageSize = 500;
const runsInterval = 5000;

/** outcomeChoices are what can be asked for; the first one is that without a choice. */
const outcomeChoices: Array<{ value: string; text: string; outcomes: Outcome[] }> = [
  { value: "", text: "without success", outcomes: [] },
  { value: "failed", text: "failed: dead or quarantined", outcomes: ["OUTCOME_DEAD", "OUTCOME_QUARANTINED"] },
  { value: "dead", text: "dead", outcomes: ["OUTCOME_DEAD"] },
  { value: "timed-out", text: "dead: the last attempt timed out", outcomes: ["OUTCOME_TIMED_OUT"] },
  { value: "lost", text: "their worker was lost", outcomes: ["OUTCOME_LOST"] },
  { value: "quarantined", text: "quarantined", outcomes: ["OUTCOME_QUARANTINED"] },
  { value: "cancelled", text: "cancelled", outcomes: ["OUTCOME_CANCELLED"] },
  { value: "succeeded", text: "succeeded", outcomes: ["OUTCOME_SUCCEEDED"] },
];

function Runs() {
  const ns = namespace.value;
  const { since = defaultSince, until, outcome = "", queue = "", filter = "" } = place.value.query;
  const pages = useSignal<string[]>([""]); // tokens of the pages up to the current one
  const view = [ns, since, until, outcome, queue, filter].join("\n");
  useEffect(() => { pages.value = [""]; }, [view]);
  // A window that is relative begins when it is opened: the tokens of further pages are for the same window.
  const start = useMemo(() => startOf(since), [view]);
  const token = pages.value.at(-1)!;
  const list = useQuery(`runs\n${view}\n${token}`, (signal) => call("ListRuns", {
    namespace: ns, job: "-", startTime: start, endTime: instantOf(until), queue, filter, pageSize, pageToken: token,
    outcomes: outcomeChoices.find((o) => o.value === outcome)?.outcomes,
  }, undefined, { signal }), runsInterval);
  const invalid = list.error.value?.fields["filter"];
  return (
    <>
      <h1>Runs</h1>
      <FilterBar label="Filter runs by their jobs" value={filter} fields={jobFilterFields} error={invalid}
        placeholder="Jobs as they are now, such as: labels.team = billing" onChange={(value) => setQuery({ filter: value || undefined })} />
      <Window since={since} until={until} start={start} />
      <div class="chips">
        <select aria-label="Outcome" value={outcome} onChange={(e) => setQuery({ outcome: e.currentTarget.value || undefined })}>
          {outcomeChoices.map((o) => <option key={o.value} value={o.value}>{o.text}</option>)}
        </select>
        <TextFilter name="queue" label="Queue" value={queue} />
        <Count list={list.data.value} page={pages.value.length} />
      </div>
      {!invalid && (
        <Loaded query={list} lines={10} what="The runs">
          {(data) => {
            const runs = data.runs ?? [];
            if (runs.length === 0) return <Empty title="No run ended so"><p>{emptyHint(outcome)}</p></Empty>;
            return (
              <>
                <Sentence>{sentenceOf(data)}</Sentence>
                {outcome !== "succeeded" && <Groups runs={runs} />}
                <Table caption="Runs" columns={columns} rows={runs} keyOf={(r) => `${r.name}/${r.finishTime}`} />
                {(data.nextPageToken || pages.value.length > 1) && (
                  <div class="buttons">
                    <button type="button" disabled={pages.value.length === 1} onClick={() => { pages.value = pages.value.slice(0, -1); }}>Newer runs</button>
                    <button type="button" disabled={!data.nextPageToken} onClick={() => { pages.value = [...pages.value, data.nextPageToken!]; }}>Older runs</button>
                  </div>
                )}
              </>
            );
          }}
        </Loaded>
      )}
    </>
  );
}

function emptyHint(outcome: string): string {
  return outcome === "succeeded"
    ? "Choose a longer window or another filter. Successes go back as far as the nodes keep events."
    : "Choose a longer window, another outcome or another filter. An attempt that failed and was tried again with success is not in the list.";
}

/** Window chooses when the runs ended. The fields are in the zone of this machine; the link has instants. */
function Window({ since, until, start }: { since: string; until: string | undefined; start: string | undefined }) {
  const set = (name: "since" | "until") => (value: string) => {
    const time = new Date(value);
    const instant = Number.isNaN(time.getTime()) ? undefined : time.toISOString();
    setQuery(name === "since" ? { since: instant ?? "all" } : { until: instant });
  };
  return (
    <div class="chips" role="group" aria-label="When they ended">
      <span class="soft">Ended in the</span>
      {quickWindows.map((w) => (
        <a key={w.name} class="chip" href={listLink("runs", { ...place.value.query, since: w.since === defaultSince ? undefined : w.since, until: undefined })}
          aria-current={w.since === since && !until ? "true" : undefined}>{w.name}</a>
      ))}
      <label class="soft">from <TimeInput name="since" value={toInput(start)} onChange={set("since")} /></label>
      <label class="soft">until <TimeInput name="until" value={toInput(instantOf(until))} onChange={set("until")} /></label>
      <span class="soft">local time</span>
    </div>
  );
}

/** TimeInput keeps what somebody types, which is incomplete in between, while it has the focus. */
function TimeInput({ name, value, onChange }: { name: string; value: string; onChange: (value: string) => void }) {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (document.activeElement !== input.current) input.current!.value = value;
  }, [value]);
  return <input ref={input} type="datetime-local" name={name} onChange={(e) => onChange(e.currentTarget.value)} />;
}

function Count({ list, page }: { list: ListRunsResponse | undefined; page: number }) {
  if (!list) return null;
  const n = plural((list.runs ?? []).length, "run");
  return <span class="soft" role="status">{page > 1 || list.nextPageToken ? `page ${page}, ${n}` : n}{list.incomplete ? ", incomplete: the search took too long" : ""}</span>;
}

/** sentenceOf says what happened most. */
function sentenceOf(data: ListRunsResponse): string {
  const runs = data.runs ?? [];
  const jobs = countBy(runs, "job");
  return `${plural(runs.length, "run")} of ${plural(jobs.length, "job")}${data.nextPageToken ? " on this page" : ""}`
    + `${jobs.length > 1 && jobs[0]!.count > 1 ? `; ${jobs[0]!.key.split("/")[1]} has the most, ${jobs[0]!.count}` : ""}.`;
}

const maxGroups = 6;

const errorColumns: Column<RunGroup>[] = [
  { title: "Error", cell: (g) => <ErrorText text={g.key} /> }, { title: "Runs", numeric: true, cell: (g) => g.count },
];
const jobColumns: Column<RunGroup>[] = [
  { title: "Job", cell: (g) => <JobLink name={g.sample.name} /> }, { title: "Runs", numeric: true, cell: (g) => g.count },
];

function Groups({ runs }: { runs: Run[] }) {
  const errors = countBy(runs, "error");
  const jobs = countBy(runs, "job");
  return (
    <div class="grid run-groups">
      <Card title="By error" note={moreText(errors)}><Table caption="Errors" columns={errorColumns} rows={errors.slice(0, maxGroups)} keyOf={(g) => g.key} /></Card>
      <Card title="By job" note={moreText(jobs)}><Table caption="Jobs with such runs" columns={jobColumns} rows={jobs.slice(0, maxGroups)} keyOf={(g) => g.key} /></Card>
    </div>
  );
}

const moreText = (groups: RunGroup[]) => (groups.length > maxGroups ? `the first ${maxGroups} of ${groups.length}` : "");

const columns: Column<Run>[] = [
  { title: "Ended", cell: (r) => <a href={runLink(r.name)}><Time at={r.finishTime} /></a> },
  { title: "Job", cell: (r) => <JobLink name={r.name} /> },
  { title: "Outcome", cell: (r) => <RunOutcome run={r} /> },
  { title: "Error", minor: 1, cell: (r) => <ErrorText text={r.error} /> },
  { title: "Took", numeric: true, minor: 1, cell: (r) => tookOf(r) },
  { title: "Attempts", numeric: true, minor: 2, cell: (r) => r.attempts ?? 0 },
  { title: "Scheduled", minor: 2, cell: (r) => <Time at={r.nominalTime} /> },
  { title: "Trigger", minor: 2, cell: (r) => wordsOf(r.trigger, "TRIGGER_") },
  { title: "Queue", minor: 2, cell: (r) => <bdi>{r.queue}</bdi> },
];

function RunOutcome({ run }: { run: Run }) {
  const last = wordsOf(run.lastAttemptOutcome, "OUTCOME_");
  return <><State {...stateOfOutcome(run.outcome)} />{last && last !== "failed" && run.lastAttemptOutcome !== run.outcome && <span class="soft"> ({last})</span>}</>;
}

export const runsScreen: Screen = { path: "runs", title: () => "Runs", nav: "Runs", key: "r", view: Runs };
