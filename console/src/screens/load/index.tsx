// Load: the due runs of the next 24 hours by minute, herds, and how to spread them.
import { call } from "../../api/client";
import type { LoadHerd } from "../../api/generated";
import { anyNamespace, jobLink, namespace, place } from "../../app/routes";
import type { Screen } from "../../app/screen";
import { Card, Sentence } from "../../components/card";
import { seriesOf } from "../../components/load_series";
import { Empty, Loaded } from "../../components/messages";
import { Table, type Column } from "../../components/table";
import { TextFilter } from "../../components/text_filter";
import { Time } from "../../components/time";
import { formatCount, plural } from "../../format/text";
import { formatMinute, zoneFor } from "../../format/time";
import { useQuery } from "../../live/query";
import { HeatMap } from "./heat_map";

const maxJobsShown = 4;

const herdColumns: Column<LoadHerd>[] = [
  { title: "Due", cell: (h) => <Time at={h.time} /> },
  { title: "Jobs", numeric: true, cell: (h) => formatCount(h.jobs) },
  { title: "Could move", numeric: true, cell: (h) => formatCount(h.movableJobs) },
  { title: "How", cell: (h) => <HowToSpread herd={h} /> },
  { title: "Schedule", minor: 1, cell: (h) => <code>{h.schedule}</code> },
  { title: "Times in 24 h", numeric: true, minor: 1, cell: (h) => formatCount(h.times) },
  { title: "Queue", minor: 1, cell: (h) => <bdi>{h.queue}</bdi> },
  { title: "Such as", minor: 2, cell: (h) => (h.jobIds ?? []).slice(0, maxJobsShown).map((id) => (
    <span key={id}><a class="id" href={jobLink(`namespaces/${h.namespace}/jobs/${id}`)}><bdi>{id}</bdi></a> </span>)) },
];

function HowToSpread({ herd }: { herd: LoadHerd }) {
  return herd.fix ? <>schedule <code>{herd.fix}</code></> : <span class="soft">jitter, or another time</span>;
}

function Load() {
  const ns = namespace.value;
  const queue = place.value.query["queue"] ?? "";
  const forecast = useQuery(`load/${ns}/${queue}`, (signal) => call("ForecastLoad",
    { namespace: ns === anyNamespace ? undefined : ns, queue, horizon: "86400s", resolution: "60s", herdJobs: "10" }, undefined, { signal }), 60_000);
  return (
    <>
      <h1>Load</h1>
      <Loaded query={forecast} lines={12} what="The forecast">
        {(f) => {
          const series = seriesOf(f);
          const all = series.counts.reduce((a, b) => a + b, 0);
          const left = (f.queues ?? []).reduce((n, q) => n + Number(q.jobsLeftOut ?? 0), 0);
          if (all === 0) return <Empty title="No run is due within 24 hours"><p>Jobs with a schedule appear here.</p></Empty>;
          const most = Math.max(...series.counts);
          const peak = series.start + series.counts.indexOf(most) * series.step;
          return (
            <>
              <Sentence>{formatCount(all)} runs within 24 hours, at most <b>{formatCount(most)} in the minute of {formatMinute(peak, zoneFor())}</b>.
                {left > 0 && ` The later runs of ${plural(left, "job")} are not counted: their schedules are too many.`}
                {(f.missingShards ?? []).length > 0 && ` ${plural(f.missingShards!.length, "shard")} did not answer.`}</Sentence>
              <div class="stack">
                <Card title="By minute" note="a row for each hour" aside={<TextFilter name="queue" label="Queue" value={queue} />}>
                  <HeatMap series={series} />
                </Card>
                <Card title="Herds" note="ten jobs or more of a queue at the same time">
                  {(f.herds ?? []).length === 0 ? <p class="soft">No herd: no ten jobs of a queue have the same scheduled time.</p>
                    : <Table caption="Herds" columns={herdColumns} rows={f.herds!} keyOf={(h) => `${h.namespace}/${h.queue}/${h.time}/${h.schedule}`} />}
                </Card>
                <Busiest counts={series.counts} start={series.start} step={series.step} />
              </div>
            </>
          );
        }}
      </Loaded>
    </>
  );
}

/** Busiest are the minutes with the most runs, for those who cannot see the map. */
function Busiest({ counts, start, step }: { counts: number[]; start: number; step: number }) {
  const rows = counts.map((n, i) => ({ n, at: new Date(start + i * step).toISOString() })).filter((r) => r.n > 0)
    .sort((a, b) => b.n - a.n).slice(0, 10);
  const columns: Column<(typeof rows)[number]>[] = [
    { title: "Minute", cell: (r) => <Time at={r.at} both /> }, { title: "Runs", numeric: true, cell: (r) => formatCount(r.n) },
  ];
  return <Card title="Busiest minutes"><Table caption="Busiest minutes" columns={columns} rows={rows} keyOf={(r) => r.at} /></Card>;
}

export const loadScreen: Screen = { path: "load", title: () => "Load", under: "upcoming", view: Load };
