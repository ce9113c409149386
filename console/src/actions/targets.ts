// Actions on targets.
import { call } from "../api/client";
import type { Target } from "../api/generated";
import { lastPart, parseJobName } from "../api/names";
import { plural } from "../format/text";
import { defineAction, type Action } from "./action";

const namespaceOf = (t: Target) => lastPart(t.parent);
/** scopeOf: a target concerns jobs of all queues, so that the role must be for all of them. */
const scopeOf = (t: Target) => ({ namespace: namespaceOf(t), queue: "*" });
const unavailable = (t: Target) => (t.state === "STATE_CLOSED" || !t.state ? "Nothing is held back: the circuit is closed." : "");

export const probeTarget: Action<Target> = defineAction({
  id: "probe-target", label: "Probe…", method: "ProbeTarget",
  title: (t) => `Probe target ${t.target}`,
  effect: () => "The wait ends, and one of the runs that the target holds back starts. If it succeeds, all others start; if it fails, the wait doubles.",
  scope: scopeOf,
  unavailable: (t) => unavailable(t) || (t.state === "STATE_PROBING" ? "A run probes it already." : ""),
  params: (t) => ({ namespace: namespaceOf(t) }),
  body: (t) => ({ target: t.target }),
  cli: (t) => ["targets", "probe", t.target ?? "", "--namespace", namespaceOf(t)],
  done: (t, r) => (r.job ? `${parseJobName(r.job).job} probes target ${t.target}.` : `The next run of target ${t.target} that is due probes it.`),
});

const resetOnce = defineAction<"ResetTarget", Target>({
  id: "reset-target", label: "Reset…", method: "ResetTarget",
  title: (t) => `Reset target ${t.target}`,
  effect: (t) => `Its failures are forgotten, and all runs that it holds back${t.heldJobs ? ` (of ${plural(t.heldJobs, "job")})` : ""} are due at once. `
    + "The next failure makes runs wait again. Where many runs wait, probe the target first.",
  scope: scopeOf, unavailable,
  params: (t) => ({ namespace: namespaceOf(t) }),
  body: (t) => ({ target: t.target }),
  cli: (t) => ["targets", "reset", t.target ?? "", "--namespace", namespaceOf(t)],
  done: () => "",
});

/** resetTarget calls ResetTarget until no run is held back any more: each call releases one page. */
export const resetTarget: Action<Target> = {
  ...resetOnce,
  run: async (t) => {
    let released = 0;
    let pageToken: string | undefined;
    do {
      const r = await call("ResetTarget", { namespace: namespaceOf(t) }, { target: t.target, pageToken });
      released += r.released ?? 0;
      pageToken = r.nextPageToken || undefined;
    } while (pageToken);
    return `Target ${t.target} is reset: ${plural(released, "run")} due.`;
  },
};
