// Targets and locks: what jobs share, what it holds back, and who has it.
import { ActionButton } from "../../actions/button";
import { probeTarget, resetTarget } from "../../actions/targets";
import type { LockHolder, LockStatus, LockWaiter, Target } from "../../api/generated";
import { lastPart } from "../../api/names";
import { anyNamespace, listLink, namespace, runLink } from "../../app/routes";
import type { Screen } from "../../app/screen";
import { Card, Sentence } from "../../components/card";
import { ErrorText, JobLink } from "../../components/job_link";
import { Loaded } from "../../components/messages";
import { State, type StateWord } from "../../components/state";
import { Table, type Column } from "../../components/table";
import { Ago, Countdown, Time } from "../../components/time";
import { plural, quoteText } from "../../format/text";
import { useQuery } from "../../live/query";
import { loadLocks, loadTargets, type Found } from "./load";
import "./targets.css";

const targetsInterval = 4000;

function stateOfTarget(t: Target): StateWord {
  switch (t.state) {
    case "STATE_OPEN":
      return { tone: "bad", text: "down: its runs wait" };
    case "STATE_HALF_OPEN":
      return { tone: "hold", text: "the next run probes it" };
    case "STATE_PROBING":
      return { tone: "wait", text: "a run probes it" };
  }
  return { tone: "ok", text: "up" };
}

/** OfNamespace is a name with its namespace, where the list shows several. */
const OfNamespace = ({ parent, name }: { parent: string | undefined; name: string | undefined }) => (
  <span class="id">{namespace.value === anyNamespace && <span class="soft">{lastPart(parent)}/</span>}<bdi>{name}</bdi></span>
);

const jobsOf = (t: Target) => listLink("jobs", { namespace: lastPart(t.parent), filter: `target = ${quoteText(t.target ?? "")}` });

const targetColumns: Column<Target>[] = [
  { title: "Target", cell: (t) => <OfNamespace parent={t.parent} name={t.target} /> },
  { title: "State", cell: (t) => <State {...stateOfTarget(t)} /> },
  { title: "Held jobs", numeric: true, cell: (t) => <a href={jobsOf(t)}>{t.heldJobs ?? 0} of {t.jobs ?? 0}</a> },
  { title: "Failures", numeric: true, minor: 1, cell: (t) => Number(t.failures ?? 0) || "" },
  { title: "Since", minor: 1, cell: (t) => <Ago at={t.sinceTime} /> },
  { title: "Waits until", cell: (t) => t.openUntilTime ? <><Time at={t.openUntilTime} /> <span class="soft">(<Countdown to={t.openUntilTime} />)</span></> : null },
  { title: "Failed job", minor: 2, cell: (t) => (t.failedJob ? <JobLink name={t.failedJob} /> : null) },
  { title: "Error", minor: 2, cell: (t) => <ErrorText text={t.error} /> },
  { title: "Action", cell: (t) => <span class="nowrap"><ActionButton action={probeTarget} subject={t} /> <ActionButton action={resetTarget} subject={t} /></span> },
];

function stateOfLock(l: LockStatus): StateWord {
  if (l.waiting) return { tone: "hold", text: `${plural(l.waiting, "run")} wait${l.waiting === 1 ? "s" : ""}` };
  return l.held ? { tone: "ok", text: "held" } : { tone: "idle", text: "free" };
}

const lockColumns: Column<LockStatus>[] = [
  { title: "Lock", cell: (l) => <OfNamespace parent={l.parent} name={l.key} /> },
  { title: "State", cell: (l) => <State {...stateOfLock(l)} /> },
  { title: "Held", numeric: true, cell: (l) => `${l.held ?? 0} of ${l.capacity ?? 1}` },
  { title: "Holders", cell: (l) => <Holders holders={l.holders ?? []} count={l.held ?? 0} /> },
  { title: "Waiters, in order", cell: (l) => <Waiters waiters={l.waiters ?? []} count={l.waiting ?? 0} /> },
  { title: "Jobs", numeric: true, minor: 1, cell: (l) => l.jobs ?? 0 },
];

const HiddenJob = () => <span class="soft">a job that you may not see</span>;

function Holders({ holders, count }: { holders: LockHolder[]; count: number }) {
  return (
    <ul class="people">
      {holders.map((h, i) => (
        <li key={h.run ?? i}>
          {h.job ? <JobLink name={h.job} /> : <HiddenJob />}{" "}
          <span class="soft">{h.run ? <a href={runLink(h.run)}>run</a> : h.job ? "(its run has ended)" : ""}{h.worker && <> at worker <bdi>{h.worker}</bdi></>} since <Ago at={h.sinceTime} />, lease ends <Ago at={h.leaseEndTime} /></span>
        </li>
      ))}
      {count > holders.length && <li class="soft">and {count - holders.length} more</li>}
    </ul>
  );
}

function Waiters({ waiters, count }: { waiters: LockWaiter[]; count: number }) {
  return (
    <ol class="people">
      {waiters.map((w, i) => (
        <li key={w.job ?? i}>
          {w.job ? <JobLink name={w.job} /> : <HiddenJob />}{" "}
          <span class="soft">{w.sinceTime && <>since <Ago at={w.sinceTime} /></>}{w.reservedUntilTime && <>, a unit is reserved until <Time at={w.reservedUntilTime} /></>}</span>
        </li>
      ))}
      {count > waiters.length && <li class="soft">and {count - waiters.length} more</li>}
    </ol>
  );
}

function TargetsAndLocks() {
  const ns = namespace.value;
  const targets = useQuery(`targets/${ns}`, (signal) => loadTargets(ns, signal), targetsInterval);
  const locks = useQuery(`locks/${ns}`, (signal) => loadLocks(ns, signal), targetsInterval);
  return (
    <>
      <h1>Targets and locks</h1>
      <Sentence>{targets.data.value && locks.data.value && sentenceOf(targets.data.value.all, locks.data.value.all)}</Sentence>
      <div class="stack">
        <Card title="Targets" note="all jobs of a target share one backoff">
          <Loaded query={targets} what="The targets">
            {(f) => f.all.length === 0 ? <p class="soft">No job names a target.</p>
              : <><Table caption="Targets" columns={targetColumns} rows={sortTargets(f.all)} keyOf={(t) => `${t.parent}/${t.target}`} /><Cut found={f} /></>}
          </Loaded>
        </Card>
        <Card title="Locks" note="a live run holds all of its job's locks">
          <Loaded query={locks} what="The locks">
            {(f) => f.all.length === 0 ? <p class="soft">No job names a lock.</p>
              : <><Table caption="Locks" columns={lockColumns} rows={sortLocks(f.all)} keyOf={(l) => `${l.parent}/${l.key}`} /><Cut found={f} /></>}
          </Loaded>
        </Card>
      </div>
    </>
  );
}

const Cut = ({ found }: { found: Found<unknown> }) =>
  found.isCut ? <p class="soft">There are more jobs than were looked at: choose a namespace to see the others, and all numbers.</p> : null;

const isDown = (t: Target) => t.state !== undefined && t.state !== "STATE_CLOSED" && t.state !== "STATE_UNSPECIFIED";

const sortTargets = (all: Target[]) => [...all].sort((a, b) =>
  Number(isDown(b)) - Number(isDown(a)) || (b.heldJobs ?? 0) - (a.heldJobs ?? 0) || (a.target ?? "").localeCompare(b.target ?? ""));
const sortLocks = (all: LockStatus[]) => [...all].sort((a, b) =>
  (b.waiting ?? 0) - (a.waiting ?? 0) || (b.held ?? 0) - (a.held ?? 0) || (a.key ?? "").localeCompare(b.key ?? ""));

function sentenceOf(targets: Target[], locks: LockStatus[]): string {
  const down = targets.filter(isDown);
  const held = down.reduce((n, t) => n + (t.heldJobs ?? 0), 0);
  const waiting = locks.reduce((n, l) => n + (l.waiting ?? 0), 0);
  return `${down.length === 0 ? "No target is down" : `${plural(down.length, "target")} ${down.length === 1 ? "is" : "are"} down: ${plural(held, "job")} held back`}; `
    + `${waiting === 0 ? "no run waits for a lock" : `${plural(waiting, "run")} ${waiting === 1 ? "waits" : "wait"} for a lock`}.`;
}

export const targetsScreen: Screen = { path: "targets", title: () => "Targets and locks", nav: "Targets", key: "t", view: TargetsAndLocks };
