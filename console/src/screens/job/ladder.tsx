// The explain ladder: the gates that a run passes, in their order (docs/runs.md).
import type { ExplainJobResponse, Job, Reason, ReasonKind } from "../../api/generated";
import { parseJobName } from "../../api/names";
import { jobLink, linkTo, listLink } from "../../app/routes";
import { zoneOfSchedule } from "../../components/schedule_text";
import { Ago, Countdown, Time } from "../../components/time";
import { formatSpan } from "../../format/duration";
import { quoteText } from "../../format/text";

/** Gate is one step of the ladder. */
interface Gate {
  name: string;
  kinds: ReasonKind[];
  /** open describes the gate while it holds nothing back; "" if the job does not have it. */
  open: (job: Job) => string;
  /** late: it is looked at only when the run is due. */
  late?: boolean;
  link?: (job: Job, r: Reason) => string | undefined;
}

const queueLink = (job: Job) => linkTo(["namespaces", parseJobName(job.name).namespace, "queues", job.queue ?? ""]);

const gates: Gate[] = [
  { name: "Schedule", kinds: ["KIND_EXCLUSION", "KIND_SCHEDULE", "KIND_DONE"], open: (j) => (j.schedule ? "has further times" : "runs on request") },
  { name: "Enabled", kinds: ["KIND_PAUSED", "KIND_DEAD"], open: () => "not paused" },
  { name: "Backoff", kinds: ["KIND_BACKOFF", "KIND_RETRY", "KIND_HINT"],
    open: (j) => (Number(j.status?.consecutiveFailures ?? 0) > 0 ? `interval ${formatSpan(j.status?.effectiveInterval)}` : "the last run did not fail") },
  { name: "Due time", kinds: ["KIND_NOT_DUE"], open: () => "has come" },
  { name: "Node", kinds: ["KIND_NO_HOLDER", "KIND_OVERSIZED_SHARD"], open: () => "a node has its shard", late: true, link: () => listLink("cluster", {}) },
  { name: "Workers", kinds: ["KIND_NO_WORKER", "KIND_NO_SLOT"], open: () => "a slot is free", late: true, link: queueLink },
  { name: "Queue limits", kinds: ["KIND_QUEUE_PAUSED", "KIND_QUEUE_CONCURRENCY", "KIND_QUEUE_RATE"], open: (j) => `queue ${j.queue} lets it pass`, late: true, link: queueLink },
  { name: "Other runs", kinds: ["KIND_OVERLAP"], open: () => "no other run is in its way", late: true },
  { name: "Recovery", kinds: ["KIND_PACE"], open: () => "not paced", late: true, link: queueLink },
  { name: "Locks", kinds: ["KIND_LOCK"], open: (j) => (j.locks?.length ? `${j.locks.map((l) => l.key).join(", ")}: free` : ""), late: true,
    link: (j, r) => (r.blockedBy ? jobLink(`namespaces/${parseJobName(j.name).namespace}/jobs/${r.blockedBy}`) : undefined) },
  { name: "Target", kinds: ["KIND_TARGET"], open: (j) => (j.target ? `${j.target}: closed circuit` : ""), late: true,
    link: (j) => listLink("jobs", { filter: `target = ${quoteText(j.target ?? "")}` }) },
  { name: "Payload", kinds: ["KIND_PAYLOAD"], open: (j) => (j.payloadSealed ? "sealed" : ""), late: true },
];

/** Ladder shows each gate: open, shut or not looked at yet; since when, until when. */
export function Ladder({ explained }: { explained: ExplainJobResponse }) {
  const job = explained.job ?? {};
  const reasons = explained.reasons ?? [];
  const running = reasons.find((r) => r.kind === "KIND_RUNNING");
  const isEarly = !running && reasons.some((r) => ["KIND_NOT_DUE", "KIND_BACKOFF", "KIND_RETRY", "KIND_HINT", "KIND_PAUSED", "KIND_DEAD", "KIND_DONE", "KIND_SCHEDULE"].includes(r.kind ?? ""));
  return (
    <ol class="ladder">
      {gates.map((g) => <Step key={g.name} gate={g} job={job} isEarly={isEarly} reason={reasons.find((r) => g.kinds.includes(r.kind!))} />)}
      {running && <li class="passed"><span class="mark" /><b>Running</b><span>{running.message}</span><span><Ago at={running.sinceTime} /></span></li>}
    </ol>
  );
}

function Step({ gate, job, reason, isEarly }: { gate: Gate; job: Job; reason: Reason | undefined; isEarly: boolean }) {
  const zone = zoneOfSchedule(job.schedule);
  if (reason) {
    const waits = reason.kind === "KIND_NOT_DUE";
    const href = gate.link?.(job, reason);
    return (
      <li class={waits ? "waits" : "shut"}>
        <span class="mark" /><b>{gate.name}</b>
        <span><span class="hidden">{waits ? "waiting: " : "shut: "}</span><bdi>{quoted(withoutClock(reason))}</bdi>
          {reason.sinceTime && <span class="soft"> since <Time at={reason.sinceTime} zone={zone} /></span>}
          {reason.untilTime && <span class="soft"> until <Time at={reason.untilTime} zone={zone} /></span>}
          {href && <> <a href={href} aria-label={`Open what ${gate.name.toLowerCase()} is about`}>open ›</a></>}
        </span>
        <span class="num">{reason.untilTime && <Countdown to={reason.untilTime} />}</span>
      </li>
    );
  }
  const text = gate.open(job);
  const isLater = (!!gate.late || gate.name === "Due time") && isEarly && text !== "";
  return (
    <li class={text === "" || isLater ? "off" : "open"}>
      <span class="mark" /><span>{gate.name}</span>
      <span class="soft"><span class="hidden">{isLater || text === "" ? "" : "open: "}</span>
        {text === "" ? "the job has none" : isLater ? (gate.late ? "looked at when it is due" : "after the gates above") : <bdi>{text}</bdi>}</span>
      <span />
    </li>
  );
}

/** withoutClock is the message without the times that are shown beside it in the chosen zone. */
const withoutClock = (r: Reason) => (r.message ?? "").replace(/,? (until|waiting since|since) [\d-]*\s?[\d:]{8}( UTC)?/g, "").replace(/^due [\d-]*\s?[\d:]{8}( UTC)?$/, "has not come");

/** quoted shows what a message has between backquotes as code. */
const quoted = (message: string) => message.split("`").map((part, i) => (i % 2 === 1 ? <code key={i}>{part}</code> : part));
