import type { Run } from "../../api/generated";
import { parseJobName } from "../../api/names";
import { errorPattern } from "../dead_letters/groups";

/** RunGroup are runs with something in common. */
export interface RunGroup {
  key: string;
  count: number;
  /** sample is one of them. */
  sample: Run;
}

const groupings = {
  error: (r: Run) => errorPattern(r.error ?? ""),
  job: (r: Run) => `${parseJobName(r.name).namespace}/${parseJobName(r.name).job}`,
  queue: (r: Run) => r.queue ?? "",
};

/** GroupKey is what runs of a group have in common. */
export type GroupKey = keyof typeof groupings;

/** countBy counts runs by what they have in common, the most first. */
export function countBy(runs: Run[], by: GroupKey): RunGroup[] {
  const groups = new Map<string, RunGroup>();
  for (const sample of runs) {
    const key = groupings[by](sample);
    const group = groups.get(key) ?? { key, count: 0, sample };
    group.count++;
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => b.count - a.count || a.key.localeCompare(b.key));
}
