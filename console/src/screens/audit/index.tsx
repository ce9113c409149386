// Audit: who has changed what.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call } from "../../api/client";
import type { AuditRecord } from "../../api/generated";
import { lastPart } from "../../api/names";
import { anyNamespace, jobLink, linkTo, namespace, place } from "../../app/routes";
import type { Screen } from "../../app/screen";
import { Empty, Loaded } from "../../components/messages";
import { State, type StateWord } from "../../components/state";
import { Table, type Column } from "../../components/table";
import { TextFilter } from "../../components/text_filter";
import { Time } from "../../components/time";
import { useQuery } from "../../live/query";

const pageSize = 100;

/** resultOf is what became of a call. */
function resultOf(r: AuditRecord): StateWord {
  if (r.code) return { tone: "bad", text: `refused (code ${r.code})` };
  return Number(r.refused ?? 0) > 0 ? { tone: "retry", text: `${r.refused} refused` } : { tone: "ok", text: "done" };
}

const columns: Column<AuditRecord>[] = [
  { title: "Time", cell: (r) => <Time at={r.time} both /> },
  { title: "Who", cell: (r) => <bdi>{r.identity}</bdi> },
  { title: "Did", cell: (r) => lastPart(r.method) },
  { title: "To", cell: (r) => <Resource record={r} /> },
  { title: "Result", cell: (r) => <State {...resultOf(r)} /> },
  { title: "Fields", minor: 1, cell: (r) => <bdi class="soft">{(r.changedFields ?? []).join(", ")}</bdi> },
  { title: "From", minor: 2, cell: (r) => <span class="id">{r.peer}</span> },
  { title: "Node", minor: 2, cell: (r) => <bdi>{r.node}</bdi> },
];

function Resource({ record: r }: { record: AuditRecord }) {
  const name = r.names?.length === 1 ? r.names[0]! : r.resource ?? "";
  const isJob = /^namespaces\/[^/]+\/jobs\/[^/]+/.test(name);
  return (
    <>
      {isJob ? <a class="id" href={jobLink(name)}><bdi>{lastPart(name)}</bdi></a> : <bdi class="id">{name}</bdi>}
      {(r.names?.length ?? 0) > 1 && <span class="soft"> and {r.names!.length} names</span>}
    </>
  );
}

function Audit() {
  const ns = namespace.value;
  const { identity = "", resource = "" } = place.value.query;
  const scope = resource || (ns === anyNamespace ? "" : `namespaces/${ns}`);
  const pages = useSignal<string[]>([""]);
  useEffect(() => { pages.value = [""]; }, [identity, scope]);
  const token = pages.value.at(-1)!;
  const list = useQuery(`audit\n${scope}\n${identity}\n${token}`, (signal) =>
    call("ListAuditRecords", { resource: scope, identity, pageSize, pageToken: token }, undefined, { signal }), token ? 0 : 5000);
  return (
    <>
      <h1>Audit</h1>
      <div class="chips" role="group" aria-label="Filters">
        <TextFilter name="identity" label="Identity" value={identity} />
        <TextFilter name="resource" label="Resource, such as namespaces/shop/jobs/report" value={resource} />
        {(identity || resource) && <a class="chip" href={linkTo(["audit"])}>Show all</a>}
      </div>
      <Loaded query={list} what="The audit records">
        {(d) => (d.records ?? []).length === 0
          ? <Empty title="No record"><p>Each change of a job, a queue or the cluster leaves one, also if it was refused.</p></Empty>
          : (
            <>
              <Table caption="Audit records, the newest first" columns={columns} rows={d.records!} keyOf={(r) => r.id ?? ""} />
              <div class="buttons">
                <button type="button" disabled={pages.value.length === 1} onClick={() => { pages.value = pages.value.slice(0, -1); }}>Newer</button>
                <button type="button" disabled={!d.nextPageToken} onClick={() => { pages.value = [...pages.value, d.nextPageToken!]; }}>Older</button>
              </div>
            </>
          )}
      </Loaded>
    </>
  );
}

export const auditScreen: Screen = { path: "audit", title: () => "Audit", nav: "Audit", key: "a", view: Audit };
