// Create and edit a job.
import "./edit.css";
import { useState } from "preact/hooks";
import { call } from "../../api/client";
import { refusalOf } from "../../app/access";
import { anyNamespace, linkTo, listLink, namespace as chosen } from "../../app/routes";
import type { Screen, ScreenProps } from "../../app/screen";
import { Empty, Loaded } from "../../components/messages";
import { useQuery } from "../../live/query";
import { JobForm } from "./form";

function CreateJob() {
  return (
    <>
      <nav class="path soft" aria-label="Path"><a href={listLink("jobs", {})}>Jobs</a></nav>
      <h1>Create a job</h1>
      <JobForm namespace={chosen.value === anyNamespace ? "default" : chosen.value} />
    </>
  );
}

function EditJob({ params }: ScreenProps) {
  const { namespace, job: id } = params as { namespace: string; job: string };
  const [opened] = useState(() => crypto.randomUUID()); // an edit does not begin with data of an earlier one
  const job = useQuery(`edit/${namespace}/${id}/${opened}`, (signal) => call("GetJob", { namespace, job: id }, undefined, { signal }), 10_000);
  if (job.error.value?.status === 404 && !job.data.value) return <Empty title={`There is no job ${id} in namespace ${namespace}`} />;
  return (
    <>
      <nav class="path soft" aria-label="Path">
        <a href={listLink("jobs", {})}>Jobs</a> / <a href={linkTo(["namespaces", namespace, "jobs", id])}><bdi>{id}</bdi></a>
      </nav>
      <h1>Edit <bdi class="id">{id}</bdi></h1>
      <Loaded query={job} what="The job" lines={12}>
        {(stored) => <JobForm key={`${namespace}/${id}`} namespace={namespace} id={id} stored={stored} reload={job.refresh} />}
      </Loaded>
    </>
  );
}

/** EditLink leads to the form of a job. */
export function EditLink({ namespace, id }: { namespace: string; id: string }) {
  const refusal = refusalOf("UpdateJob", { namespace });
  return <a class="button" data-edit role={refusal ? "link" : undefined} aria-disabled={refusal ? true : undefined} title={refusal || undefined}
    href={refusal ? undefined : linkTo(["namespaces", namespace, "jobs", id, "edit"])}>Edit…</a>;
}

/** CreateLink leads to the form of a new job. */
export function CreateLink() {
  const refusal = refusalOf("CreateJob", chosen.value === anyNamespace ? {} : { namespace: chosen.value });
  return <a class="button" data-create role={refusal ? "link" : undefined} aria-disabled={refusal ? true : undefined} title={refusal || undefined}
    href={refusal ? undefined : listLink("create", {})}>Create a job</a>;
}

export const createScreen: Screen = { path: "create", title: () => "Create a job", under: "jobs", view: CreateJob };
export const editScreen: Screen = {
  path: "namespaces/:namespace/jobs/:job/edit", title: (p) => `Edit ${p["job"]}`, under: "jobs", view: EditJob,
};
