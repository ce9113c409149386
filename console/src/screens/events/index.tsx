// Events: what happens, as it happens.
import { useState } from "preact/hooks";
import type { Event } from "../../api/generated";
import { anyNamespace, jobLink, namespace, place, linkTo } from "../../app/routes";
import type { Screen } from "../../app/screen";
import { ErrorText } from "../../components/job_link";
import { Empty, Failed } from "../../components/messages";
import { State, type Tone } from "../../components/state";
import { Table, type Column } from "../../components/table";
import { TextFilter } from "../../components/text_filter";
import { Time } from "../../components/time";
import { parseJobName } from "../../api/names";
import { formatCount, wordsOf } from "../../format/text";
import { useEvents, type FeedState } from "../../live/events";

/** kindFilters are frequent choices of kinds. */
const kindFilters = [
  { name: "All", kinds: "" },
  { name: "Failures", kinds: "run.failed,run.timed_out,run.dead,run.lost,run.quarantined" },
  { name: "Missed and late", kinds: "run.missed,run.late" },
  { name: "Held", kinds: "run.held" },
  { name: "Changes", kinds: "job.*" },
  { name: "Cluster", kinds: "node.*,shard.*" },
];

const stateTexts: Record<FeedState, { tone: Tone; text: string }> = {
  connecting: { tone: "wait", text: "connecting" }, live: { tone: "ok", text: "live" },
  interrupted: { tone: "hold", text: "interrupted, trying again" }, stopped: { tone: "bad", text: "stopped" },
};

const tones: Array<[RegExp, Tone]> = [
  [/succeeded|created|resumed|joined|redriven/, "ok"], [/dead|quarantined|missed|late|deleted/, "bad"], [/failed|timed_out/, "retry"],
  [/lost|left|taken/, "lost"], [/held|backoff|hint/, "hold"], [/paused|cancelled/, "idle"],
];

const toneOf = (kind: string): Tone => tones.find(([pattern]) => pattern.test(kind))?.[1] ?? "wait";

const columns: Column<Event>[] = [
  { title: "Time", cell: (e) => <Time at={e.time} /> },
  { title: "Kind", cell: (e) => <State tone={toneOf(e.kind ?? "")} text={e.kind ?? ""} /> },
  { title: "Job", cell: (e) => e.job ? <a class="id" href={e.runId ? linkTo([...e.job.split("/"), "runs", e.runId]) : jobLink(e.job)}><bdi>{parseJobName(e.job).job}</bdi></a> : <bdi>{e.node}{e.shard === undefined ? "" : `, shard ${e.shard}`}</bdi> },
  { title: "What", minor: 1, cell: (e) => <What event={e} /> },
  { title: "Queue", minor: 2, cell: (e) => <bdi>{e.queue}</bdi> },
  { title: "Worker", minor: 2, cell: (e) => <bdi class="id">{e.worker}</bdi> },
  { title: "Due", minor: 2, cell: (e) => (e.dueTime ? <Time at={e.dueTime} /> : null) },
];

function What({ event: e }: { event: Event }) {
  if (e.error) return <ErrorText text={e.error} />;
  const parts = [e.reason, e.attempt && e.attempt > 1 ? `attempt ${e.attempt}` : "", Number(e.count ?? 0) > 0 ? `${e.count} times` : "", wordsOf(e.trigger, "TRIGGER_").replace("schedule", "")];
  return <span class="soft"><bdi>{parts.filter(Boolean).join(", ")}</bdi></span>;
}

function Events() {
  const ns = namespace.value;
  const { kinds = "", queue = "", job = "" } = place.value.query;
  const [isPaused, setIsPaused] = useState(false);
  const feed = useEvents(`${ns}\n${kinds}\n${queue}\n${job}`, {
    ...(ns === anyNamespace ? {} : { namespace: ns }), kinds: kinds ? kinds.split(",") : undefined, queues: queue ? [queue] : undefined,
    jobIds: job ? [job] : undefined,
  }, isPaused);
  const state = isPaused ? { tone: "idle" as const, text: "paused" } : stateTexts[feed.state.value];
  return (
    <>
      <h1>Events</h1>
      <div class="chips" role="group" aria-label="Kinds">
        {kindFilters.map((k) => (
          <a key={k.name} class="chip" aria-current={k.kinds === kinds ? "true" : undefined}
            href={linkTo(["events"], { ...place.value.query, kinds: k.kinds || undefined })}>{k.name}</a>
        ))}
        <TextFilter name="queue" label="Queue" value={queue} />
        <TextFilter name="job" label="Job" value={job} />
        <button type="button" onClick={() => setIsPaused(!isPaused)}>{isPaused ? "Continue" : "Pause"}</button>
        <span role="status"><State {...state} /></span>
        <span class="soft">{formatCount(feed.total.value)} since this page was opened, and of 15 minutes before</span>
      </div>
      {feed.error.value && feed.state.value === "stopped" ? <Failed failure={feed.error.value} what="Events" />
        : feed.events.value.length === 0 ? <Empty title="No event yet"><p>What happens to jobs, runs and nodes appears here.</p></Empty>
          : <Table caption="Events, the newest first" columns={columns} rows={feed.events.value} keyOf={(e) => e.id ?? ""} isWindowed />}
    </>
  );
}

export const eventsScreen: Screen = { path: "events", title: () => "Events", nav: "Events", key: "e", view: Events };
