// Jobs: the list with its filter in the URL.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call } from "../../api/client";
import { jobFilterFields, type Job, type ListJobsResponse } from "../../api/generated";
import { linkTo, listLink, namespace, place, setQuery } from "../../app/routes";
import type { Screen } from "../../app/screen";
import { BulkButtons } from "../../bulk/buttons";
import { BulkChanges } from "../../bulk/progress";
import { FilterBar } from "../../components/filter_bar";
import { Empty, Loaded } from "../../components/messages";
import { recentRuns } from "../../components/state";
import { Table } from "../../components/table";
import { plural } from "../../format/text";
import { useQuery, type Query } from "../../live/query";
import { ApplyLink } from "../apply";
import { CreateLink } from "../edit";
import { jobColumns } from "./columns";

const defaultOrder = "next_due_time";
const pageSize = 50;

/** mostSearches bounds the calls for one page: each looks at some thousands of jobs. */
const mostSearches = 20;

/** findJobs returns a page of jobs. Where few match, a page of the API may end before it has found one: the search goes on. */
async function findJobs(ns: string, filter: string, orderBy: string, pageToken: string, signal: AbortSignal): Promise<ListJobsResponse> {
  for (let searches = 1; ; searches++) {
    const page = await call("ListJobs", { namespace: ns, filter, orderBy, pageSize, pageToken, recentRuns }, undefined, { signal });
    if (page.jobs?.length || !page.nextPageToken || searches === mostSearches) return page;
    pageToken = page.nextPageToken;
  }
}

/** quickFilters are filters that people need often. */
const quickFilters = [
  { name: "All", filter: "" },
  { name: "Failing", filter: "failing = true" },
  { name: "Running", filter: "state = running" },
  { name: "Paused", filter: "paused = true" },
  { name: "Dead", filter: "state = dead" },
  { name: "Ran in the last hour", filter: "last_run_time > -1h" },
];

function Jobs() {
  const ns = namespace.value;
  const filter = place.value.query["filter"] ?? "";
  const order = place.value.query["order"] ?? defaultOrder;
  const pages = useSignal<string[]>([""]); // tokens of the pages up to the current one
  const view = `${ns}\n${filter}\n${order}`;
  useEffect(() => { pages.value = [""]; }, [view]);
  const token = pages.value.at(-1)!;
  const list = useQuery(`jobs\n${view}\n${token}`, (signal) => findJobs(ns, filter, order, token, signal));
  const invalid = list.error.value?.status === 400 ? list.error.value.message : undefined;
  return (
    <>
      <h1>Jobs</h1>
      <FilterBar label="Filter jobs" value={filter} fields={jobFilterFields} error={invalid}
        placeholder='A word of the id or handler, or: queue = mail AND failing = true'
        onChange={(value) => setQuery({ filter: value || undefined })} />
      <div class="chips" role="group" aria-label="Frequent filters">
        {quickFilters.map((q) => (
          <a key={q.name} class="chip" href={listLink("jobs", { ...place.value.query, filter: q.filter || undefined })}
            aria-current={q.filter === filter ? "true" : undefined}>{q.name}</a>
        ))}
        <CreateLink />
        <ApplyLink />
        <Count list={list.data.value} pages={pages.value.length} />
      </div>
      {!invalid && <BulkButtons isAbout="jobs" namespace={ns} filter={filter} />}
      <BulkChanges isAbout="jobs" />
      {invalid ? null : (
        <Loaded query={list} lines={10} what="The jobs">
          {(data) => (
            <>
              <JobTable jobs={data.jobs ?? []} isFiltered={filter !== ""} order={order} goesOn={!!data.nextPageToken} />
              <Pages list={list} pages={pages} />
            </>
          )}
        </Loaded>
      )}
    </>
  );
}

function Count({ list, pages }: { list: ListJobsResponse | undefined; pages: number }) {
  if (!list) return null;
  const n = (list.jobs ?? []).length;
  const text = pages > 1 || list.nextPageToken ? `page ${pages}, ${plural(n, "job")}` : plural(n, "job");
  return <span class="soft" role="status">{text}{list.incomplete ? ", the search goes on with the next page" : ""}</span>;
}

function JobTable({ jobs, isFiltered, order, goesOn }: { jobs: Job[]; isFiltered: boolean; order: string; goesOn: boolean }) {
  if (jobs.length === 0 && goesOn) return <Empty title="No match so far"><p>The search goes on with the next page.</p></Empty>;
  if (jobs.length === 0) {
    return isFiltered
      ? <Empty title="No job matches"><p>Change the filter, or <a href={linkTo(["jobs"], {})}>show all jobs</a>.</p></Empty>
      : <Empty title="There is no job yet">
        <p>Create one: <code>fermata jobs create hello --every 30s --http https://example.com/ping</code></p>
      </Empty>;
  }
  return (
    <Table caption="Jobs" columns={jobColumns} rows={jobs} keyOf={(j) => j.name ?? ""} order={order}
      onOrder={(o) => setQuery({ order: o === defaultOrder ? undefined : o })} />
  );
}

function Pages({ list, pages }: { list: Query<ListJobsResponse>; pages: { value: string[] } }) {
  const next = list.data.value?.nextPageToken;
  if (!next && pages.value.length === 1) return null;
  return (
    <div class="buttons">
      <button type="button" disabled={pages.value.length === 1} onClick={() => { pages.value = pages.value.slice(0, -1); }}>Previous page</button>
      <button type="button" disabled={!next} onClick={() => { pages.value = [...pages.value, next!]; }}>Next page</button>
    </div>
  );
}

export const jobsScreen: Screen = { path: "jobs", title: () => "Jobs", nav: "Jobs", key: "j", view: Jobs };
