// The definitions that a job had: who changed what and when, the difference of two, and the way back.
import { ActionButton } from "../../actions/button";
import { restoreRevision } from "../../actions/revisions";
import { call } from "../../api/client";
import type { DiffJobRevisionsResponse, Job, JobRevision } from "../../api/generated";
import { place, setQuery } from "../../app/routes";
import { ChangeTable } from "../../components/change_table";
import { Loaded } from "../../components/messages";
import { Table, type Column } from "../../components/table";
import { Ago } from "../../components/time";
import { findDifferences } from "../../format/difference";
import { plural } from "../../format/text";
import { useQuery } from "../../live/query";

const revisionsInterval = 10_000;

/** Revisions lists the revisions of a job, and compares two of them. Which ones is part of the link. */
export function Revisions({ namespace, job }: { namespace: string; job: string }) {
  const list = useQuery(`revisions/${namespace}/${job}`, (signal) =>
    call("ListJobRevisions", { namespace, job }, undefined, { signal }), revisionsInterval);
  return (
    <Loaded query={list} what="The revisions" lines={4}>
      {(data) => {
        const revisions = data.revisions ?? [];
        const from = place.value.query["from"];
        if (revisions.length < 2) return <p class="soft">No earlier definition is kept.</p>;
        return (
          <>
            <Table caption="Revisions" columns={columns} rows={revisions} keyOf={(r) => r.revision ?? ""} />
            {from && <Comparison namespace={namespace} job={job} from={from} to={place.value.query["to"]} revisions={revisions} />}
          </>
        );
      }}
    </Loaded>
  );
}

const columns: Column<JobRevision>[] = [
  { title: "Revision", cell: (r) => `${r.revision}${r.current ? " (now)" : ""}` },
  { title: "Stored", cell: (r) => <Ago at={r.createTime} /> },
  { title: "By", minor: 1, cell: (r) => <bdi>{r.identity || "–"}</bdi> },
  { title: "Call", minor: 1, cell: (r) => r.method || "–" },
  { title: "Changed", cell: (r) => (r.fields ?? []).join(", ") },
  { title: "Compare", cell: (r) => r.current ? null
    : <button type="button" data-compare={r.revision} aria-label={`Compare revision ${r.revision} with now`}
      onClick={() => setQuery({ from: r.revision, to: undefined })}>With now</button> },
];

interface ComparedRevisions {
  job: Job;
  diff: DiffJobRevisionsResponse;
}

/**
 * compareRevisions reads the job before it compares: if somebody edits the job in between, its etag is old, and a
 * restore is refused.
 */
async function compareRevisions(namespace: string, job: string, from: string, to: string | undefined, signal: AbortSignal): Promise<ComparedRevisions> {
  const current = await call("GetJob", { namespace, job }, undefined, { signal });
  const diff = await call("DiffJobRevisions", { namespace, job, fromRevision: from, toRevision: to }, undefined, { signal });
  return { job: current, diff };
}

function Comparison({ namespace, job, from, to, revisions }: {
  namespace: string; job: string; from: string; to: string | undefined; revisions: JobRevision[];
}) {
  const current = revisions.find((r) => r.current)?.revision ?? "";
  const compared = useQuery(`comparison/${namespace}/${job}/${from}/${to ?? "now"}`, (signal) =>
    compareRevisions(namespace, job, from, to, signal), 0);
  return (
    <div class="comparison">
      <div class="chips">
        <RevisionChoice label="From" value={from} revisions={revisions} onChange={(v) => setQuery({ from: v })} />
        <RevisionChoice label="to" value={to ?? current} revisions={revisions} onChange={(v) => setQuery({ to: v === current ? undefined : v })} />
        <button type="button" class="quiet" onClick={() => setQuery({ from: undefined, to: undefined })}>Close</button>
      </div>
      <Loaded query={compared} what="The comparison" lines={3}>
        {(data) => (
          <>
            {to === undefined && data.diff.to?.revision !== current && (
              <p role="status">The job has been edited since it was compared. <button type="button" data-compare-again
                onClick={() => void compared.refresh()}>Compare again</button></p>
            )}
            <Changes compared={data} />
          </>
        )}
      </Loaded>
    </div>
  );
}

function RevisionChoice({ label, value, revisions, onChange }: {
  label: string; value: string; revisions: JobRevision[]; onChange: (revision: string) => void;
}) {
  return (
    <label>
      {label} revision <select value={value} onChange={(e) => onChange(e.currentTarget.value)}>
        {revisions.map((r) => <option key={r.revision} value={r.revision}>{r.revision}{r.current ? " (now)" : ""}</option>)}
      </select>
    </label>
  );
}

function Changes({ compared: { job, diff } }: { compared: ComparedRevisions }) {
  const { from, to } = diff;
  const fields = diff.fields ?? [];
  const changes = findDifferences(from?.job ?? {}, to?.job ?? {}, fields);
  return (
    <>
      {changes.length === 0
        ? <p role="status">No field differs.</p>
        : <ChangeTable caption={`${plural(changes.length, "difference")} of revisions ${from?.revision} and ${to?.revision}`}
          from={`Revision ${from?.revision}`} to={to?.current ? "Now" : `Revision ${to?.revision}`} changes={changes} />}
      {to?.current && !from?.current && (
        <div class="buttons"><ActionButton action={restoreRevision} subject={{ job, revision: from?.revision ?? "", fields }} /></div>
      )}
    </>
  );
}
