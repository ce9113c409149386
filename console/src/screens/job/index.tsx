// Job: one sentence about its state, why it does not run, its backoff, what comes next, what was.
import { backfillJob, cancelRun, deleteJob, hintJob, pauseJob, resumeJob, runJob } from "../../actions/jobs";
import { ActionButton } from "../../actions/button";
import { call } from "../../api/client";
import type { ExplainJobResponse, Job, PreviewScheduleResponse } from "../../api/generated";
import { goTo, linkTo, listLink } from "../../app/routes";
import type { Screen, ScreenProps } from "../../app/screen";
import { Card } from "../../components/card";
import { Empty, Loaded } from "../../components/messages";
import { scheduleText } from "../../components/schedule_text";
import { State, stateOfJob } from "../../components/state";
import { quoteText } from "../../format/text";
import { useQuery } from "../../live/query";
import { EditLink } from "../edit";
import { Backoff } from "./backoff";
import { Definition } from "./definition";
import { Ladder } from "./ladder";
import { NextRuns } from "./next_runs";
import { Revisions } from "./revisions";
import { Runs } from "./runs";
import { StatusSentence } from "./status_sentence";

/** previewCount is how many of the next times are shown. */
const previewCount = 12;

function JobPage({ params }: ScreenProps) {
  const { namespace, job: id } = params as { namespace: string; job: string };
  const key = `job/${namespace}/${id}/`;
  const explained = useQuery(`${key}explanation`, (signal) => call("ExplainJob", { namespace, job: id }, undefined, { signal }), 2000);
  const runs = useQuery(`${key}runs`, (signal) => call("ListRuns", { namespace, job: id }, undefined, { signal }), 2500);
  const preview = useQuery(`${key}preview`, (signal) =>
    call("PreviewSchedule", {}, { job: `namespaces/${namespace}/jobs/${id}`, count: previewCount }, { signal }), 5000);
  if (explained.error.value?.status === 404) {
    return <Empty title={`There is no job ${id} in namespace ${namespace}`}>
      <p>It may have been deleted or renamed. <a href={listLink("jobs", { namespace, filter: id })}>Find jobs like it</a>.</p>
    </Empty>;
  }
  return (
    <Loaded query={explained} what="The job" lines={12}>
      {(e) => (
        <>
          <Head id={id} namespace={namespace} explained={e} preview={preview.data.value} />
          <div class="split">
            <div class="stack">
              <Card title="Backoff">
                <Loaded query={preview} lines={8}>{(p) => <Backoff job={e.job ?? {}} preview={p} />}</Loaded>
              </Card>
              <Card title="Runs" note="each bar from its scheduled time to its end, on one time axis">
                <Loaded query={runs} lines={8}>{(r) => <Runs job={e.job ?? {}} runs={r.runs ?? []} />}</Loaded>
              </Card>
              <Card title="Definition"><Definition job={e.job ?? {}} /></Card>
              <Card title="Revisions"><Revisions namespace={namespace} job={id} /></Card>
            </div>
            <div class="stack">
              <Card title="Why is it not running?"><Ladder explained={e} /></Card>
              <Card title="Next, if all goes well">
                <Loaded query={preview} lines={8}>{(p) => <NextRuns job={e.job ?? {}} preview={p} />}</Loaded>
              </Card>
            </div>
          </div>
        </>
      )}
    </Loaded>
  );
}

function Head({ id, namespace, explained, preview }: {
  id: string; namespace: string; explained: ExplainJobResponse; preview: PreviewScheduleResponse | undefined;
}) {
  const job = explained.job ?? {};
  const live = explained.runs?.find((r) => r.state === "STATE_RUNNING");
  return (
    <>
      <nav class="path soft" aria-label="Path"><a href={listLink("jobs", {})}>Jobs</a> / <a href={listLink("jobs", { namespace })}><bdi>{namespace}</bdi></a></nav>
      <div class="head">
        <h1><bdi class="id">{id}</bdi></h1>
        <State {...stateOfJob(job)} />
        <Facts job={job} namespace={namespace} />
        <div class="buttons actions">
          <ActionButton action={runJob} subject={job} main />
          {live && <ActionButton action={cancelRun} subject={{ job, run: live }} />}
          {job.status?.pauseTime ? <ActionButton action={resumeJob} subject={job} /> : <ActionButton action={pauseJob} subject={job} />}
          <ActionButton action={hintJob} subject={job} />
          <EditLink namespace={namespace} id={id} />
          <ActionButton action={backfillJob} subject={job} />
          <ActionButton action={deleteJob} subject={job} onDone={() => goTo(linkTo(["jobs"], { namespace }))} />
        </div>
      </div>
      <StatusSentence explained={explained} preview={preview} />
    </>
  );
}

function Facts({ job, namespace }: { job: Job; namespace: string }) {
  const filter = (field: string, value: string | undefined) => listLink("jobs", { namespace, filter: `${field} = ${quoteText(value ?? "")}` });
  return (
    <>
      <a class="chip" href={filter("queue", job.queue)}>queue <bdi>{job.queue}</bdi></a>
      <span class="chip">{scheduleText(job.schedule)}</span>
      {job.target && <a class="chip" href={filter("target", job.target)}>target <bdi>{job.target}</bdi></a>}
    </>
  );
}

export const jobScreen: Screen = {
  path: "namespaces/:namespace/jobs/:job", title: (p) => p["job"] ?? "Job", under: "jobs", view: JobPage,
};
