// What needs attention, the worst first. Each problem is a sentence with a link.
import type { ListUpcomingJobsResponse, LostNode, Node, Queue, Shard } from "../../api/generated";
import { linkTo, listLink } from "../../app/routes";
import { formatDuration, parseDuration } from "../../format/duration";
import { plural } from "../../format/text";

/** Problem is one thing that needs attention. */
export interface Problem {
  /** name is what it is about, for the heading. */
  name: string;
  text: string;
  href: string;
}

/** Facts are what problems are found in; parts that are not known are undefined. */
export interface Facts {
  queues?: Queue[];
  nodes?: Node[];
  lostNodes?: LostNode[];
  shards?: Shard[];
  upcoming?: ListUpcomingJobsResponse;
}

/** findProblems reads them off the state of the cluster. */
export function findProblems(facts: Facts): Problem[] {
  return [...queueProblems(facts.queues ?? []), ...targetProblems(facts.upcoming), ...clusterProblems(facts)];
}

function queueProblems(queues: Queue[]): Problem[] {
  const found: Array<Problem & { rank: number }> = [];
  for (const q of queues) {
    const waits = parseDuration(q.oldestOverdue);
    const count = Number(q.backlog ?? 0);
    const breaches = Number(q.recentRuns?.breaches ?? 0);
    const href = linkTo(["namespaces", q.namespace ?? "", "queues", q.queue ?? ""]);
    const jobs = plural(count, "run");
    if (count > 0 && Number(q.workers ?? 0) === 0) {
      found.push({ rank: 1e12 + waits, href, name: `queue ${q.queue}`,
        text: `${jobs} on queue ${q.queue} ${count === 1 ? "has" : "have"} waited up to ${formatDuration(waits)} because no worker serves it.` });
    } else if (q.queuePaused) {
      found.push({ rank: waits, href, name: `queue ${q.queue}`, text: `Queue ${q.queue} is paused${count > 0 ? `: ${jobs} wait` : ""}.` });
    } else if (waits > 5000) {
      found.push({ rank: waits, href, name: `queue ${q.queue}`,
        text: `${jobs} on queue ${q.queue} ${count === 1 ? "is" : "are"} overdue, by up to ${formatDuration(waits)}; ${plural(q.freeSlots, "slot")} ${Number(q.freeSlots) === 1 ? "is" : "are"} free.` });
    } else if (breaches > 0) {
      found.push({ rank: breaches, href, name: `queue ${q.queue}`,
        text: `${plural(breaches, "run")} on queue ${q.queue} did not start in time within the last minute.` });
    }
  }
  return found.sort((a, b) => b.rank - a.rank);
}

function targetProblems(upcoming: ListUpcomingJobsResponse | undefined): Problem[] {
  const jobs = new Map<string, number>();
  for (const r of upcoming?.runs ?? []) {
    if (r.hold?.reason === "REASON_TARGET") jobs.set(r.hold.key ?? "", (jobs.get(r.hold.key ?? "") ?? 0) + 1);
  }
  return [...jobs].sort((a, b) => b[1] - a[1]).map(([target, count]) => ({
    name: `target ${target}`, href: listLink("targets", {}),
    text: `Target ${target} is down: ${plural(count, "job")} held.`,
  }));
}

function clusterProblems({ nodes, lostNodes, shards }: Facts): Problem[] {
  const found: Problem[] = [];
  const href = listLink("cluster", {});
  for (const n of nodes ?? []) {
    if (n.unreachable) found.push({ name: `node ${n.name}`, href, text: `Node ${n.name} cannot be reached.` });
  }
  const free = (shards ?? []).filter((s) => !s.holder).length;
  for (const n of lostNodes ?? []) {
    found.push({ name: `node ${n.name}`, href, text: `Node ${n.name} has disappeared without leaving${shards && free === 0 ? "; other nodes have its shards" : ""}.` });
  }
  if (free > 0) {
    found.push({ name: plural(free, "shard"), href,
      text: `${plural(free, "shard")} ${free === 1 ? "has" : "have"} no node: ${free === 1 ? "its" : "their"} jobs do not run.` });
  }
  return found;
}
