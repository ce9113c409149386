// Resource names, such as namespaces/shop/jobs/report/runs/1.

/** JobName is a job by its namespace and id. */
export interface JobName {
  namespace: string;
  job: string;
}

/** RunName is a run of a job. */
export interface RunName extends JobName {
  run: string;
}

/** parseJobName splits namespaces/{namespace}/jobs/{job}, also of a run. */
export function parseJobName(name: string | undefined): JobName {
  const parts = (name ?? "").split("/");
  return { namespace: parts[1] ?? "", job: parts[3] ?? "" };
}

/** parseRunName splits namespaces/{namespace}/jobs/{job}/runs/{run}. */
export function parseRunName(name: string | undefined): RunName {
  return { ...parseJobName(name), run: (name ?? "").split("/")[5] ?? "" };
}

/** lastPart is the id at the end of a resource name. */
export const lastPart = (name: string | undefined): string => (name ?? "").split("/").at(-1)!;
