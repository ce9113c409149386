// Overview: are schedules kept, what fails, what is held and by what, what comes next, and who does it.
import { call } from "../../api/client";
import { listLink, namespace, anyNamespace } from "../../app/routes";
import type { Screen } from "../../app/screen";
import { Card } from "../../components/card";
import { Loaded } from "../../components/messages";
import { recentRuns } from "../../components/state";
import { useQuery } from "../../live/query";
import { Cluster } from "./cluster";
import { Failing, Late } from "./rankings";
import { Figures } from "./figures";
import { Headline } from "./headline";
import { Held } from "./held";
import { NextHour } from "./next_hour";

/** overviewInterval is how often the overview loads. */
const overviewInterval = 4000;

/** useOverview has the data of all parts. Each fails on its own: a caller may not be allowed to see all. */
function useOverview() {
  const ns = namespace.value;
  const one = ns === anyNamespace ? undefined : ns;
  const key = `overview/${ns}/`;
  return {
    queues: useQuery(`${key}queues`, (signal) => call("ListQueues", { namespace: one }, undefined, { signal }), overviewInterval),
    namespaces: useQuery(`${key}namespaces`, (signal) => call("ListNamespaces", {}, undefined, { signal }), overviewInterval),
    failing: useQuery(`${key}failing`, (signal) =>
      call("ListJobs", { namespace: ns, orderBy: "consecutive_failures desc", pageSize: 8, recentRuns }, undefined, { signal }), overviewInterval),
    late: useQuery(`${key}late`, (signal) =>
      call("TopJobs", { namespace: one, kind: "KIND_LATE", limit: 8 }, undefined, { signal }), overviewInterval),
    upcoming: useQuery(`${key}upcoming`, (signal) =>
      call("ListUpcomingJobs", { namespace: ns, pageSize: 1000 }, undefined, { signal }), 10_000),
    forecast: useQuery(`${key}forecast`, (signal) =>
      call("ForecastLoad", { namespace: one, horizon: "3600s", resolution: "60s" }, undefined, { signal }), 30_000),
    nodes: useQuery("nodes", (signal) => call("ListNodes", {}, undefined, { signal }), overviewInterval),
    shards: useQuery("shards", (signal) => call("ListShards", {}, undefined, { signal }), overviewInterval),
    workers: useQuery("workers", (signal) => call("ListWorkers", {}, undefined, { signal }), overviewInterval),
  };
}

/** OverviewData are the queries of the overview. */
export type OverviewData = ReturnType<typeof useOverview>;

function Overview() {
  const data = useOverview();
  return (
    <>
      <Headline data={data} />
      <Figures data={data} />
      <div class="grid">
        <Card title="What is held, by what">
          <Loaded query={data.upcoming} lines={6} what="What is held">{(u) => <Held upcoming={u} queues={data.queues.data.value} />}</Loaded>
        </Card>
        <Card title="Next hour" note="due runs a minute">
          <Loaded query={data.forecast} lines={6} what="The forecast">{(f) => <NextHour forecast={f} />}</Loaded>
        </Card>
        <Card title="Cluster">
          <Cluster data={data} />
        </Card>
      </div>
      <div class="grid wide">
        <Card title="Failing longest" aside={<span>
          <a href={listLink("runs", { outcome: "failed" })}>Failed in the last 24 hours</a>
          {" · "}<a href={listLink("jobs", { filter: "failing = true", order: "consecutive_failures desc" })}>All</a></span>}>
          <Loaded query={data.failing} what="Failing jobs">{(list) => <Failing jobs={list.jobs ?? []} />}</Loaded>
        </Card>
        <Card title="Most overdue">
          <Loaded query={data.late} what="Late jobs">
            {(t) => <Late jobs={t.jobs ?? []} queues={data.queues.data.value?.queues} />}
          </Loaded>
        </Card>
      </div>
    </>
  );
}

export const overviewScreen: Screen = { path: "", title: () => "Overview", nav: "Overview", key: "o", view: Overview };
