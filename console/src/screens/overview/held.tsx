import type { ListQueuesResponse, ListUpcomingJobsResponse, UpcomingRun } from "../../api/generated";
import { listLink } from "../../app/routes";
import { Bars, type Bar } from "../../components/bars";
import { formatCount } from "../../format/text";

/** gates in the order in which a run passes them. */
const gates: Array<Omit<Bar, "count" | "href"> & { holds: (r: UpcomingRun) => boolean; filter?: string }> = [
  { name: "backoff", tone: "hold", holds: (r) => r.delaySource === "DELAY_SOURCE_BACKOFF", filter: "failing = true" },
  { name: "retry", tone: "retry", holds: (r) => r.delaySource === "DELAY_SOURCE_RETRY" },
  { name: "hint", tone: "wait", holds: (r) => r.delaySource === "DELAY_SOURCE_HINT" },
  { name: "another run", tone: "wait", holds: (r) => r.hold?.reason === "REASON_OVERLAP" },
  { name: "lock", tone: "wait", holds: (r) => r.hold?.reason === "REASON_LOCK" },
  { name: "target", tone: "hold", holds: (r) => r.hold?.reason === "REASON_TARGET" },
  { name: "recovery rate", tone: "wait", holds: (r) => r.hold?.reason === "REASON_PACE" },
  { name: "queue paused", tone: "idle", holds: (r) => !!r.queuePaused },
];

/** Held counts the planned runs by the gate that holds them. */
export function Held({ upcoming, queues }: { upcoming: ListUpcomingJobsResponse; queues: ListQueuesResponse | undefined }) {
  const runs = upcoming.runs ?? [];
  const bars: Bar[] = gates.map((g) => ({
    name: g.name, tone: g.tone, count: runs.filter(g.holds).length,
    href: listLink(g.filter ? "jobs" : "upcoming", g.filter ? { filter: g.filter } : {}),
  }));
  const unserved = (queues?.queues ?? []).filter((q) => Number(q.workers ?? 0) === 0)
    .reduce((n, q) => n + Number(q.backlog ?? 0), 0);
  bars.push({ name: "no worker", tone: "bad", count: unserved, href: listLink("queues", {}) });
  const paused = (queues?.queues ?? []).reduce((n, q) => n + Number(q.paused ?? 0), 0);
  bars.push({ name: "paused job", tone: "idle", count: paused, href: listLink("jobs", { filter: "paused = true" }) });
  const holding = bars.filter((b) => b.count > 0).sort((a, b) => b.count - a.count);
  const open = bars.filter((b) => b.count === 0).map((b) => b.name);
  return (
    <>
      {holding.length > 0 ? <Bars bars={holding} label="Held runs by gate" /> : <p>No planned run is held.</p>}
      {holding.length > 0 && open.length > 0 && <p class="soft">Nothing by {listOf(open)}.</p>}
      {upcoming.nextPageToken && <p class="soft">Gates of the next {formatCount(runs.length)} runs.</p>}
    </>
  );
}

/** listOf joins names: a, b or c. */
const listOf = (names: string[]): string =>
  names.length === 1 ? names[0]! : `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
