// Run: when it was scheduled, due, started and ended, with what result.
import { ActionButton } from "../../actions/button";
import { cancelRun } from "../../actions/jobs";
import { call } from "../../api/client";
import type { Job, Run } from "../../api/generated";
import { parseJobName } from "../../api/names";
import { jobLink } from "../../app/routes";
import type { Screen, ScreenProps } from "../../app/screen";
import { Card, Sentence } from "../../components/card";
import { CopyButton } from "../../components/copy";
import { Facts } from "../../components/facts";
import { Loaded } from "../../components/messages";
import { zoneOfSchedule } from "../../components/schedule_text";
import { State, stateOfRun } from "../../components/state";
import { Time } from "../../components/time";
import { wordsOf } from "../../format/text";
import { useQuery } from "../../live/query";
import { lagOf, tookOf } from "../job/runs";
import { RunAxis } from "./axis";
import { hasLinks, OtherSystems, type LinkFields } from "./other_systems";

function RunPage({ params }: ScreenProps) {
  const { namespace, job, run: id } = params as { namespace: string; job: string; run: string };
  const key = `run/${namespace}/${job}/${id}/`;
  const run = useQuery(`${key}run`, (signal) => call("GetRun", { namespace, job, run: id }, undefined, { signal }), 2000);
  const definition = useQuery(`${key}job`, (signal) => call("GetJob", { namespace, job }, undefined, { signal }), 10_000);
  return (
    <Loaded query={run} what="The run" lines={10}>
      {(r) => <Details run={r} job={definition.data.value ?? {}} id={id} jobID={job} />}
    </Loaded>
  );
}

function Details({ run, job, id, jobID }: { run: Run; job: Job; id: string; jobID: string }) {
  const fields: LinkFields = {
    trace_id: run.traceId, correlation_id: run.correlationId, namespace: parseJobName(run.name).namespace, job: jobID, run: id,
  };
  const zone = zoneOfSchedule(job.schedule);
  return (
    <>
      <nav class="path soft" aria-label="Path"><a href={jobLink(run.name)}><bdi>{jobID}</bdi></a> / runs</nav>
      <div class="head">
        <h1>Run of <Time at={run.nominalTime} zone={zone} /></h1>
        <State {...stateOfRun(run)} />
        {run.deadLetter && <span class="chip">dead letter</span>}
        <div class="buttons actions"><ActionButton action={cancelRun} subject={{ job, run }} /></div>
      </div>
      <Sentence>{sentenceOf(run, job)}</Sentence>
      <div class="stack"><Card title="Course"><RunAxis run={run} job={job} zone={zone} /></Card></div>
      <div class="grid">
        <Card title="Times">
          <Facts facts={[
            ["scheduled", <Time at={run.nominalTime} zone={zone} both />], ["due", <Time at={run.dueTime} zone={zone} both />],
            ["started", <Time at={run.startTime} zone={zone} both />], ["ended", <Time at={run.finishTime} zone={zone} both />],
            ["lag", lagOf(run)], ["took", tookOf(run)],
          ]} />
        </Card>
        <Card title="Identity">
          <Facts facts={[
            ["run", <code>{id}</code>], ["trigger", wordsOf(run.trigger, "TRIGGER_")],
            ["attempts", `${run.attempts ?? 0} of ${job.retryPolicy?.maxAttempts ?? "?"}${run.lostAttempts ? `, ${run.lostAttempts} lost` : ""}`],
            ["worker", <bdi class="id">{run.worker ?? "–"}</bdi>],
            ["correlation id", run.correlationId && <><code>{run.correlationId}</code> <CopyButton text={run.correlationId} label="Copy" /></>],
            ["trace", run.traceId && <><code>{run.traceId}</code> <CopyButton text={run.traceId} label="Copy" /></>],
            ["see also", hasLinks(fields) && <OtherSystems fields={fields} />],
          ]} />
        </Card>
        {run.ownPayload && <Card title="Own payload" span>
          <p>This run has it in place of the payload of its job: {run.ownPayload.size ?? 0} bytes{run.ownPayload.sealed ? ", sealed" : ""}.</p>
          {run.ownPayload.payload && <pre class="block" tabIndex={0}>{textOf(run.ownPayload.payload)}</pre>}
        </Card>}
        {run.error && <Card title="Error" span><pre class="block" tabIndex={0}>{run.error}</pre></Card>}
        {run.output && <Card title="Output" span><pre class="block" tabIndex={0}>{run.outputText ?? `base64: ${run.output}`}</pre></Card>}
      </div>
    </>
  );
}

/** textOf is a payload as text, or as base64 if it is none. */
function textOf(base64: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)));
  } catch {
    return `base64: ${base64}`;
  }
}

function sentenceOf(run: Run, job: Job): string {
  const all = job.retryPolicy?.maxAttempts;
  switch (run.state) {
    case "STATE_RUNNING":
      return `Attempt ${run.attempts ?? 1}${all ? ` of ${all}` : ""} is live on worker ${run.worker ?? "?"}.`;
    case "STATE_WAITING":
      return run.hold?.reason ? `It is held (${wordsOf(run.hold.reason, "REASON_")}${run.hold.key ? ` ${run.hold.key}` : ""}).` : "It waits for its due time or a free slot.";
  }
  return `It ended as ${wordsOf(run.outcome, "OUTCOME_")} after ${run.attempts ?? 0} attempt${run.attempts === 1 ? "" : "s"}.`;
}

export const runScreen: Screen = {
  path: "namespaces/:namespace/jobs/:job/runs/:run", title: (p) => `Run of ${p["job"]}`, under: "jobs", view: RunPage,
};
