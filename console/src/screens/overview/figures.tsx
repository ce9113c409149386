import type { ComponentChildren } from "preact";
import type { Queue, Worker } from "../../api/generated";
import { lastPart } from "../../api/names";
import { anyNamespace, listLink, namespace } from "../../app/routes";
import type { Tone } from "../../components/state";
import { formatDuration, parseDuration } from "../../format/duration";
import { formatCount, plural } from "../../format/text";
import type { OverviewData } from ".";

interface Figure {
  value: ComponentChildren;
  text: string;
  tone?: Tone;
  href: string;
}

/** Figures are the numbers that matter most, each a link to its list. */
export function Figures({ data }: { data: OverviewData }) {
  const queues = data.queues.data.value?.queues;
  if (!queues) return <div class="figures" aria-hidden="true" />;
  return (
    <ul class="figures" aria-label="Figures">
      {figuresOf(queues, data).map((f) => (
        <li key={f.text}><a href={f.href}><b class={f.tone}>{f.value}</b><span>{f.text}</span></a></li>
      ))}
    </ul>
  );
}

const sum = (queues: Queue[], of: (q: Queue) => number | string | undefined) =>
  queues.reduce((n, q) => n + Number(of(q) ?? 0), 0);
const longest = (queues: Queue[], of: (q: Queue) => string | undefined) =>
  Math.max(0, ...queues.map((q) => parseDuration(of(q))));

function figuresOf(queues: Queue[], data: OverviewData): Figure[] {
  const breaches = sum(queues, (q) => q.recentRuns?.breaches);
  const started = sum(queues, (q) => q.recentRuns?.started);
  const failed = sum(queues, (q) => q.recentRuns?.failed);
  const waits = longest(queues, (q) => q.oldestOverdue);
  const dead = sum(queues, (q) => q.dead);
  const failing = failingCount(data);
  const span = Math.max(1000, longest(queues, (q) => q.recentRuns?.span));
  return [
    { value: formatCount(breaches), tone: breaches > 0 ? "bad" : waits > 5000 ? undefined : "ok", href: listLink("queues", {}),
      text: breaches > 0 ? "starts too late, last minute"
        : waits > 5000 ? "starts too late; overdue runs have not started" : "starts too late: all were in time" },
    { value: started > 0 ? formatDuration(longest(queues, (q) => q.recentRuns?.maxLag)) : "–", href: listLink("queues", {}),
      text: "longest lag of a start, last minute" },
    { value: waits > 0 ? formatDuration(waits) : "none", tone: waits > 5000 ? "bad" : undefined,
      href: listLink("jobs", { order: "next_due_time" }), text: "longest overdue" },
    { value: failing === undefined ? "–" : formatCount(failing), tone: failing ? "hold" : undefined,
      href: listLink("jobs", { filter: "failing = true" }), text: "jobs whose last run failed" },
    { value: formatCount(dead), tone: dead > 0 ? "bad" : undefined, href: listLink("dead-letters", {}), text: "dead letters" },
    { value: `${(started / (span / 1000)).toFixed(1)}/s`, href: listLink("queues", {}),
      text: `starts, last minute; ${plural(failed, "failed attempt")}${slotText(data.workers.data.value?.workers)}` },
  ];
}

function slotText(workers: Worker[] | undefined): string {
  if (!workers) return "";
  const slots = workers.reduce((n, w) => n + (w.slots ?? 0), 0);
  return `; ${workers.reduce((n, w) => n + (w.running ?? 0), 0)} of ${slots} slots busy`;
}

function failingCount(data: OverviewData): number | undefined {
  const list = data.namespaces.data.value?.namespaces;
  const ns = namespace.value;
  return list?.filter((n) => ns === anyNamespace || lastPart(n.name) === ns).reduce((all, n) => all + Number(n.failing ?? 0), 0);
}
