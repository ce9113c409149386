// The changes of this tab with their progress.
import { Card } from "../components/card";
import { CopyButton } from "../components/copy";
import { plural } from "../format/text";
import { changes, continueChange, forgetChange, stopChange, summaryOf, type Change } from "./changes";
import { matchText } from "./dialog";
import { kindOf, kindTitle, type BulkKind } from "./kinds";
import "./bulk.css";

/** BulkChanges shows the changes of jobs, or of dead letters: what runs, what stopped and can go on, what is done. */
export function BulkChanges({ isAbout }: { isAbout: BulkKind["isAbout"] }) {
  const shown = changes.value.filter((c) => kindOf(c.method).isAbout === isAbout);
  if (shown.length === 0) return null;
  return (
    <div class="changes">
      <Card title="Changes of many">{shown.map((c) => <ChangeProgress key={c.requestId} change={c} />)}</Card>
    </div>
  );
}

function ChangeProgress({ change: c }: { change: Change }) {
  const id = c.requestId;
  const title = kindTitle(kindOf(c.method), c.counted);
  return (
    <div class="change" data-change={c.state}>
      <p><strong>{title}</strong> <span class="soft">of {c.namespace} where</span> <code>{c.filter}</code></p>
      {c.state !== "done" && <progress max={Math.max(1, c.counted)} value={Math.min(c.matched, c.counted)} aria-label={title} />}
      <p role="status">{stateText(c)}</p>
      {c.refusals.map((r) => <RefusedMatches key={r.reason} change={c} refusals={r} />)}
      {c.pauseId && <p class="soft">Pause id: <code>{c.pauseId}</code> <CopyButton text={c.pauseId} label="Copy" /> Resume with it brings back exactly these.</p>}
      <div class="buttons">
        {c.state === "running" && <button type="button" onClick={() => stopChange(id)}>Stop after this page</button>}
        {c.state === "stopped" && <button type="button" class="main" data-continue onClick={() => continueChange(id)}>Continue</button>}
        {c.state !== "running" && <button type="button" data-forget onClick={() => forgetChange(id)}>{c.state === "stopped" ? "Do not continue" : "Close"}</button>}
      </div>
    </div>
  );
}

function stateText(c: Change): string {
  const problem = c.problem ? ` ${c.problem.replace(/\.?$/, ".")}` : "";
  switch (c.state) {
    case "running":
      return `${summaryOf(c)} so far.`;
    case "stopped":
      return `Not finished: ${summaryOf(c)}.${problem} Continue changes the others, and nothing twice.`;
    case "failed":
      return `It ended early: ${summaryOf(c)}.${problem}`;
    default:
      return `Done: ${summaryOf(c)}.`;
  }
}

function RefusedMatches({ change, refusals: r }: { change: Change; refusals: Change["refusals"][number] }) {
  return (
    <details>
      <summary>{plural(r.count, kindOf(change.method).noun)} refused: {r.message || r.reason}</summary>
      <ul>{r.names.map((n) => <li key={n}><bdi class="id">{matchText(n)}</bdi></li>)}</ul>
    </details>
  );
}
