// A plan: what the nodes would change, and the call that changes exactly that.
import { call } from "../../api/client";
import type { DesiredJob, JobChange } from "../../api/generated";
import { fieldsOf } from "../../api/errors";
import { diffOf } from "../../components/field_diff";
import type { Content, Fault, FileJob } from "./manifest";

/** PlannedJob is a job of a file with what would become of it. */
export interface PlannedJob extends FileJob {
  change: JobChange;
}

/** Plan is what was shown, and is applied as it is. */
export interface Plan {
  namespace: string;
  force: boolean;
  jobs: PlannedJob[];
  faults: Fault[];
}

/** isChange: something happens to the job. */
export const isChange = (p: PlannedJob): boolean =>
  p.change.action === "ACTION_CREATE" || p.change.action === "ACTION_UPDATE";

/** makePlan asks the nodes. It throws a Failure. */
export async function makePlan(namespace: string, content: Content, force: boolean): Promise<Plan> {
  if (content.faults.length > 0 || content.jobs.length === 0) return { namespace, force, jobs: [], faults: content.faults };
  const answer = await call("PlanJobs", { namespace }, { desiredJobs: content.jobs.map((j) => j.desired), force: force || undefined });
  const jobs = content.jobs.map((j, i) => ({ ...j, change: answer.changes?.[i] ?? {} }));
  return { namespace, force, jobs, faults: jobs.flatMap(faultsOf) };
}

function faultsOf({ file, desired, change }: PlannedJob): Fault[] {
  if (!change.code) return [];
  const fields = Object.entries(fieldsOf(change.details));
  if (fields.length === 0) return [{ file, field: desired.jobId!, text: change.message ?? "" }];
  return fields.map(([name, text]) => ({ file, field: `${desired.jobId}: ${name.replace(/^job\./, "")}`, text }));
}

/** desiredOf are the entries of the call: only what changes, and only if it is as it was shown. */
export const desiredOf = (plan: Plan): DesiredJob[] =>
  plan.jobs.filter(isChange).map((p) => ({ ...p.desired, etag: p.change.before?.etag }));

/** AppliedJob is what became of one job. */
export interface AppliedJob {
  id: string;
  change: JobChange;
  /** differs: it is not what the plan showed, because defaults have changed meanwhile for instance. */
  differs: boolean;
}

/** applyPlan applies a plan. It throws a Failure; to repeat it has no second effect. */
export async function applyPlan(plan: Plan): Promise<AppliedJob[]> {
  const planned = plan.jobs.filter(isChange);
  const answer = await call("ApplyJobs", { namespace: plan.namespace }, { desiredJobs: desiredOf(plan), force: plan.force || undefined });
  return planned.map((p, i) => {
    const change = answer.changes?.[i] ?? {};
    return { id: p.desired.jobId!, change, differs: !change.code && diffOf(p.change.after, change.after).length > 0 };
  });
}
