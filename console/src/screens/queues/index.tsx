// Queues: how much there is to do, who does it, and the limits.
import { ActionButton } from "../../actions/button";
import { pauseQueue, setPauseEnd } from "../../actions/queue_pause";
import { limitQueue, resumeQueue } from "../../actions/queues";
import { call } from "../../api/client";
import type { Queue } from "../../api/generated";
import { anyNamespace, linkTo, listLink, namespace } from "../../app/routes";
import type { Screen, ScreenProps } from "../../app/screen";
import { Card, Sentence } from "../../components/card";
import { Facts } from "../../components/facts";
import { Empty, Loaded } from "../../components/messages";
import { State, type StateWord } from "../../components/state";
import { Table, type Column } from "../../components/table";
import { Countdown, Time } from "../../components/time";
import { formatDuration, formatSpan, parseDuration } from "../../format/duration";
import { formatCount, plural, quoteText } from "../../format/text";
import { useQuery } from "../../live/query";

/** stateOfQueue is the state of a queue in words. */
export function stateOfQueue(q: Queue): StateWord {
  if (q.queuePaused) return { tone: "idle", text: "paused" };
  const backlog = Number(q.backlog ?? 0);
  if (Number(q.workers ?? 0) === 0) return backlog > 0 ? { tone: "bad", text: "no worker" } : { tone: "idle", text: "no worker" };
  if (parseDuration(q.oldestOverdue) > 5000) return { tone: "hold", text: "overdue" };
  return Number(q.recentRuns?.breaches ?? 0) > 0 ? { tone: "hold", text: "late starts" } : { tone: "ok", text: "in time" };
}

const queueLink = (q: Queue) => linkTo(["namespaces", q.namespace ?? "", "queues", q.queue ?? ""]);
const waited = (text: string | undefined) => (parseDuration(text) > 0 ? formatSpan(text) : "");

const columns: Column<Queue>[] = [
  { title: "Queue", cell: (q) => <a class="id" href={queueLink(q)}>
    {namespace.value === anyNamespace && q.namespace !== "default" && <span class="soft">{q.namespace}/</span>}<bdi>{q.queue}</bdi></a> },
  { title: "State", cell: (q) => <State {...stateOfQueue(q)} /> },
  { title: "Due", numeric: true, cell: (q) => formatCount(q.backlog) },
  { title: "Oldest", numeric: true, cell: (q) => waited(q.oldestOverdue) },
  { title: "Running", numeric: true, cell: (q) => formatCount(q.running) },
  { title: "Free slots", numeric: true, minor: 1, cell: (q) => formatCount(q.freeSlots) },
  { title: "Workers", numeric: true, minor: 1, cell: (q) => formatCount(q.workers) },
  { title: "Planned", numeric: true, minor: 2, cell: (q) => formatCount(q.scheduled) },
  { title: "Starts", numeric: true, minor: 1, cell: (q) => formatCount(q.recentRuns?.started) },
  { title: "Failed", numeric: true, minor: 1, cell: (q) => formatCount(q.recentRuns?.failed) },
  { title: "Longest lag", numeric: true, minor: 2, cell: (q) => waited(q.recentRuns?.maxLag) },
  { title: "Too late", numeric: true, minor: 2, cell: (q) => formatCount(q.recentRuns?.breaches) },
  { title: "Dead", numeric: true, minor: 2, cell: (q) => formatCount(q.dead) },
];

function Queues() {
  const ns = namespace.value;
  const list = useQuery(`queues/${ns}`, (signal) => call("ListQueues", ns === anyNamespace ? {} : { namespace: ns }, undefined, { signal }));
  return (
    <>
      <h1>Queues</h1>
      <Sentence>Starts, failures, lag and late starts are of the last minute.</Sentence>
      <Loaded query={list} what="The queues">
        {(data) => (data.queues ?? []).length === 0
          ? <Empty title="There is no queue yet"><p>A queue exists as soon as a job names it: <code>fermata jobs create hello --queue mail …</code></p></Empty>
          : <Table caption="Queues" columns={columns} rows={data.queues!} keyOf={(q) => `${q.namespace}/${q.queue}`} />}
      </Loaded>
    </>
  );
}

function QueuePage({ params }: ScreenProps) {
  const { namespace: ns, queue } = params as { namespace: string; queue: string };
  const settings = useQuery(`queue/${ns}/${queue}`, (signal) => call("GetQueueSettings", { namespace: ns, queue }, undefined, { signal }));
  const list = useQuery(`queues/${ns}`, (signal) => call("ListQueues", { namespace: ns }, undefined, { signal }));
  const numbers = list.data.value?.queues?.find((q) => q.queue === queue);
  return (
    <>
      <nav class="path soft" aria-label="Path"><a href={listLink("queues", {})}>Queues</a> / <bdi>{ns}</bdi></nav>
      <Loaded query={settings} what="The queue">
        {(s) => {
          const subject = { namespace: ns, queue, settings: s };
          return (
            <>
              <div class="head">
                <h1><bdi class="id">{queue}</bdi></h1>
                {numbers && <State {...stateOfQueue(numbers)} />}
                <a class="chip" href={listLink("jobs", { namespace: ns, filter: `queue = ${quoteText(queue)}` })}>its jobs</a>
                <a class="chip" href={listLink("dead-letters", { namespace: ns, queue })}>its dead letters</a>
                <div class="buttons actions">
                  <ActionButton action={limitQueue} subject={subject} main />
                  {s.paused
                    ? <><ActionButton action={resumeQueue} subject={subject} /><ActionButton action={setPauseEnd} subject={subject} /></>
                    : <ActionButton action={pauseQueue} subject={subject} />}
                </div>
              </div>
              <Sentence>{numbers && sentenceOf(numbers)}{s.pauseUntilTime && <> The nodes resume it at <b><Time at={s.pauseUntilTime} /></b> (<Countdown to={s.pauseUntilTime} />).</>}</Sentence>
              <div class="grid">
                <Card title="Limits">
                  <Facts facts={[
                    ["live at once", s.maxConcurrency ? `${formatCount(numbers?.running)} of ${formatCount(s.maxConcurrency)}` : "no limit"],
                    ["starts", s.rate ? `${s.rate} a second, ${s.burst ? `bursts of ${s.burst}` : "bursts of one second"}` : "no limit"],
                    ["recovery rate", `${s.recoveryRate ?? 50} a second for runs that catch up, are resumed, backfilled or redriven`],
                  ]} />
                </Card>
                {numbers && <Card title="Now"><Facts facts={[
                  ["due", formatCount(numbers.backlog)], ["oldest", waited(numbers.oldestOverdue) || "none waits"],
                  ["running", formatCount(numbers.running)], ["planned", formatCount(numbers.scheduled)],
                  ["workers", `${formatCount(numbers.workers)}, ${plural(numbers.freeSlots, "free slot")}`],
                  ["paused jobs", formatCount(numbers.paused)], ["dead letters", formatCount(numbers.dead)],
                ]} /></Card>}
                {numbers?.recentRuns && <Card title="Last minute"><Facts facts={[
                  ["started", formatCount(numbers.recentRuns.started)], ["succeeded", formatCount(numbers.recentRuns.succeeded)],
                  ["failed", formatCount(numbers.recentRuns.failed)], ["longest lag", formatSpan(numbers.recentRuns.maxLag)],
                  ["too late", formatCount(numbers.recentRuns.breaches)],
                ]} /></Card>}
              </div>
            </>
          );
        }}
      </Loaded>
    </>
  );
}

function sentenceOf(q: Queue): string {
  const backlog = Number(q.backlog ?? 0);
  if (q.queuePaused) return `Nothing of it starts${backlog > 0 ? `: ${plural(backlog, "run")} wait` : ""}.`;
  if (Number(q.workers ?? 0) === 0) {
    return `No worker serves it${backlog > 0 ? `: ${plural(backlog, "run")} have waited up to ${formatDuration(parseDuration(q.oldestOverdue))}` : ""}. Start one with this queue.`;
  }
  return backlog === 0 ? "No run waits." : `${plural(backlog, "run")} wait, up to ${formatDuration(parseDuration(q.oldestOverdue))}.`;
}

export const queuesScreen: Screen = { path: "queues", title: () => "Queues", nav: "Queues", key: "q", view: Queues };
export const queueScreen: Screen = {
  path: "namespaces/:namespace/queues/:queue", title: (p) => `Queue ${p["queue"]}`, under: "queues", view: QueuePage,
};
