// Dead letters: runs that are out of attempts, grouped by what went wrong.
import { ActionButton } from "../../actions/button";
import { redriveGroup, type DeadLetterGroup } from "../../actions/dead_letters";
import { call } from "../../api/client";
import type { DeadLetter } from "../../api/generated";
import { lastPart, parseJobName } from "../../api/names";
import { anyNamespace, linkTo, namespace, place, setQuery } from "../../app/routes";
import type { Screen } from "../../app/screen";
import { BulkButtons } from "../../bulk/buttons";
import { BulkButton } from "../../bulk/dialog";
import { kindOf } from "../../bulk/kinds";
import { BulkChanges } from "../../bulk/progress";
import { Sentence } from "../../components/card";
import { ErrorText, JobLink } from "../../components/job_link";
import { Empty, Loaded } from "../../components/messages";
import { Table, type Column } from "../../components/table";
import { Ago } from "../../components/time";
import { plural, quoteText } from "../../format/text";
import { useQuery } from "../../live/query";
import { filterOfGroup, groupKeys, groupLetters, type Group, type GroupBy } from "./groups";

const pageSize = 1000;
const maxNamespaces = 20;

interface Loads {
  letters: DeadLetter[];
  /** isCut: there are more. */
  isCut: boolean;
  /** rates are the recovery rates of the queues, by namespace/queue. */
  rates: Map<string, number>;
}

/** loadLetters reads the first page of each namespace that has dead letters. */
async function loadLetters(ns: string, queue: string | undefined, signal: AbortSignal): Promise<Loads> {
  const names = ns !== anyNamespace ? [ns]
    : ((await call("ListNamespaces", {}, undefined, { signal })).namespaces ?? []).filter((n) => Number(n.dead ?? 0) > 0).map((n) => lastPart(n.name));
  const pages = await Promise.all(names.slice(0, maxNamespaces).map((n) =>
    call("ListDeadLetters", { namespace: n, queue, pageSize }, undefined, { signal })));
  const letters = pages.flatMap((p) => p.deadLetters ?? []);
  const queues = [...new Set(letters.map((d) => `${parseJobName(d.name).namespace}/${d.queue}`))].slice(0, 10);
  const rates = new Map(await Promise.all(queues.map(async (key): Promise<[string, number]> => {
    const [namespace = "", name = ""] = key.split("/");
    const settings = await call("GetQueueSettings", { namespace, queue: name }, undefined, { signal });
    return [key, settings.recoveryRate ?? 50];
  })));
  return { letters, isCut: names.length > maxNamespaces || pages.some((p) => p.nextPageToken), rates };
}

function DeadLetters() {
  const ns = namespace.value;
  const queue = place.value.query["queue"];
  const by = (place.value.query["by"] ?? "error") as GroupBy;
  const list = useQuery(`dead-letters/${ns}/${queue ?? ""}`, (signal) => loadLetters(ns, queue, signal), 5000);
  return (
    <>
      <h1>Dead letters</h1>
      <BulkButtons isAbout="dead letters" namespace={ns} filter={queue ? `queue = ${quoteText(queue)}` : ""} isEditable />
      <BulkChanges isAbout="dead letters" />
      <Loaded query={list} what="The dead letters">
        {(data) => {
          const groups = groupLetters(data.letters, by);
          return (
            <>
              <Sentence>{data.letters.length === 0 ? "" : `${plural(data.letters.length, "run")}${data.isCut ? " at least" : ""} out of attempts, in ${plural(groups.length, "group")}.`}</Sentence>
              <div class="chips" role="group" aria-label="Group by">
                <span class="soft">Group by</span>
                {groupKeys.map((g) => <a key={g} class="chip" aria-current={g === by ? "true" : undefined} href={linkTo(["dead-letters"], { ...place.value.query, by: g })}>{g}</a>)}
                {queue && <button type="button" class="quiet" onClick={() => setQuery({ queue: undefined })}>queue {queue} ×</button>}
              </div>
              {groups.length === 0
                ? <Empty title="There are no dead letters"><p>A run that is out of attempts is kept here, until it is redriven or its time is over.</p></Empty>
                : <Table caption="Groups of dead letters" columns={columnsOf(by, queue, data.rates)} rows={groups} keyOf={(g) => g.key} />}
            </>
          );
        }}
      </Loaded>
    </>
  );
}

function subjectOf(g: Group, rates: Map<string, number>): DeadLetterGroup {
  return { namespace: g.namespace, title: g.title.slice(0, 80), names: g.letters.slice(0, 1000).map((d) => d.name ?? ""), recoveryRate: rates.get(`${g.namespace}/${g.letters[0]?.queue}`) };
}

function columnsOf(by: GroupBy, queue: string | undefined, rates: Map<string, number>): Column<Group>[] {
  return [
    { title: by === "error" ? "Error" : by === "job" ? "Job" : "Queue", cell: (g) => (by === "job" ? <JobLink name={g.letters[0]?.name} /> : <ErrorText text={g.title} />) },
    { title: "Runs", numeric: true, cell: (g) => g.letters.length },
    { title: "Jobs", minor: 1, cell: (g) => <JobsOf group={g} /> },
    { title: "First", minor: 1, cell: (g) => <Ago at={g.first} /> },
    { title: "Last", cell: (g) => <Ago at={g.last} /> },
    { title: "Last error", minor: 2, cell: (g) => (by === "error" ? null : <ErrorText text={g.letters[0]?.run?.error} />) },
    { title: "Action", cell: (g) => (
      <span class="nowrap">
        <ActionButton action={redriveGroup} subject={subjectOf(g, rates)} />{" "}
        <BulkButton kind={kindOf("BulkDiscardDeadLetters")} namespace={g.namespace} filter={filterOfGroup(g, by, queue)} isEditable />
      </span>
    ) },
  ];
}

const maxJobsShown = 3;

function JobsOf({ group }: { group: Group }) {
  const names = [...new Set(group.letters.map((d) => `namespaces/${group.namespace}/jobs/${parseJobName(d.name).job}`))];
  return (
    <>
      {names.slice(0, maxJobsShown).map((n) => <span key={n}><JobLink name={n} /> </span>)}
      {names.length > maxJobsShown && <span class="soft">and {names.length - maxJobsShown} more</span>}
    </>
  );
}

export const deadLettersScreen: Screen = { path: "dead-letters", title: () => "Dead letters", nav: "Dead letters", key: "d", view: DeadLetters };
