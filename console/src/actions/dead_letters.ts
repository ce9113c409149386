// Actions on dead letters.
import { parseJobName } from "../api/names";
import { formatDuration } from "../format/duration";
import { plural } from "../format/text";
import { defineAction, type Action } from "./action";

/** DeadLetterGroup are dead letters of one namespace that are treated together. */
export interface DeadLetterGroup {
  namespace: string;
  /** title says which they are. */
  title: string;
  /** names of the dead letters, at most 1,000. */
  names: string[];
  /** recoveryRate of their queue; undefined: unknown. */
  recoveryRate?: number;
}

const jobsOf = (g: DeadLetterGroup) => [...new Set(g.names.map((n) => parseJobName(n).job))];

export const redriveGroup: Action<DeadLetterGroup> = defineAction({
  id: "redrive", label: "Redrive…", method: "RedriveDeadLetters",
  title: (g) => `Redrive ${plural(g.names.length, "dead letter")}: ${g.title}`,
  effect: (g) => {
    const pace = g.recoveryRate
      ? `, paced by the recovery rate of the queue: ${plural(g.names.length, "run")} at ${g.recoveryRate}/s take ${formatDuration((g.names.length / g.recoveryRate) * 1000)}`
      : ", paced by the recovery rate of the queue";
    return `Each runs again with the present definition of its job and all its attempts${pace}.`;
  },
  fields: () => [{ name: "ignoreExclusions", label: "Even at a time that a schedule excludes", kind: "check" }],
  scope: (g) => ({ namespace: g.namespace }),
  unavailable: (g) => (g.names.length === 0 ? "There is none." : ""),
  params: (g) => ({ namespace: g.namespace }),
  body: (g, v) => ({ names: g.names, ignoreExclusions: v["ignoreExclusions"] === "true" || undefined }),
  cli: (g, v) => ["dead-letters", "redrive", ...jobsOf(g), "--namespace", g.namespace, ...(v["ignoreExclusions"] === "true" ? ["--ignore-exclusions"] : [])],
  done: (_, r) => `${plural(r.redriven, "run")} again${r.refused ? `; ${r.refused} refused: no longer there, or the job has too many runs` : ""}.`,
});
