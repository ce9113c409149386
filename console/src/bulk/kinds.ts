// Changes of all jobs, or dead letters, that match a filter (docs/how-to/bulk-changes.md).
import type { ActionField, Values } from "../actions/action";
import type { Body } from "../api/client";
import { plural } from "../format/text";

/** BulkMethod is a method that changes all that matches a filter. */
export type BulkMethod = "BulkPauseJobs" | "BulkResumeJobs" | "BulkRunJobs" | "BulkCancelRuns" | "BulkDeleteJobs"
  | "BulkRedriveDeadLetters" | "BulkDiscardDeadLetters";

/** BulkOptions are the fields of a request that one kind of change has. */
export type BulkOptions = Omit<Body<"BulkPauseJobs"> & Body<"BulkResumeJobs"> & Body<"BulkRunJobs">,
  "filter" | "confirmation" | "dryRun" | "pageToken" | "requestId">;

/** BulkKind describes one kind of change. */
export interface BulkKind {
  method: BulkMethod;
  /** verb of the button and the title. */
  verb: string;
  /** noun is what is changed, one of them. */
  noun: string;
  /** isAbout: to which list it belongs. */
  isAbout: "jobs" | "dead letters";
  effect: string;
  fields: ActionField[];
  options: (values: Values) => BulkOptions;
  /** command of fermata that does the same, and its flags. */
  command: string[];
  flags: (options: BulkOptions) => string[];
  /** changed says what happened to the matches, after their number. */
  changed: string;
  /** isDestructive: it cannot be undone, so that the number of matches must be typed. */
  isDestructive?: boolean;
}

const backoffFlags: Record<string, string> = {
  BACKOFF_RESET: "reset", BACKOFF_KEEP: "keep", BACKOFF_RESET_ON_SUCCESS: "reset-on-success",
};

const ignoreExclusions: ActionField = { name: "ignoreExclusions", label: "Even at a time that a schedule excludes", kind: "check" };
const isOn = (v: Values, name: string) => v[name] === "true" || undefined;

/** bulkKinds are all of them, in the order of their buttons. */
export const bulkKinds: BulkKind[] = [
  {
    method: "BulkPauseJobs", verb: "Pause", noun: "job", isAbout: "jobs", changed: "paused",
    effect: "No run of them starts by a schedule until they are resumed. Live runs continue. Jobs that are paused already keep their note.",
    fields: [{ name: "note", label: "Note", kind: "text", help: "Why, for the people who find them paused.", maxLength: 256 }],
    options: (v) => ({ note: v["note"] || undefined }),
    command: ["jobs", "pause"], flags: (o) => (o.note ? ["--note", o.note] : []),
  },
  {
    method: "BulkResumeJobs", verb: "Resume", noun: "job", isAbout: "jobs", changed: "resumed",
    effect: "Their schedules go on.",
    fields: [
      { name: "pauseId", label: "Only those that one change paused: its pause id", kind: "text", maxLength: 64,
        help: "Jobs that were paused before it, or again since, stay paused. Empty: all that match." },
      { name: "catchUp", label: "Catch up on the times that passed", kind: "check" },
    ],
    options: (v) => ({ pauseId: v["pauseId"] || undefined, catchUp: isOn(v, "catchUp") }),
    command: ["jobs", "resume"],
    flags: (o) => [...(o.pauseId ? ["--pause-id", o.pauseId] : []), ...(o.catchUp ? ["--catch-up"] : [])],
  },
  {
    method: "BulkRunJobs", verb: "Run", noun: "job", isAbout: "jobs", changed: "started",
    effect: "Each of them gets one manual run now, besides its schedule, as fast as workers and limits allow.",
    fields: [
      { name: "backoff", label: "Backoff of failing jobs", kind: "choice", initial: "BACKOFF_RESET", options: [
        { value: "BACKOFF_RESET", text: "Reset it now" }, { value: "BACKOFF_KEEP", text: "Keep it" },
        { value: "BACKOFF_RESET_ON_SUCCESS", text: "Reset it if the run succeeds" },
      ] },
      ignoreExclusions,
    ],
    options: (v) => ({ backoff: v["backoff"] as BulkOptions["backoff"], ignoreExclusions: isOn(v, "ignoreExclusions") }),
    command: ["jobs", "run"],
    flags: (o) => [...(o.backoff ? ["--backoff", backoffFlags[o.backoff]!] : []), ...(o.ignoreExclusions ? ["--ignore-exclusions"] : [])],
  },
  {
    method: "BulkCancelRuns", verb: "Cancel runs of", noun: "job", isAbout: "jobs", changed: "cancelled", isDestructive: true,
    effect: "Their live runs are asked to stop; retries and manual runs that wait end at once. Runs that the schedules plan stay.",
    fields: [], options: () => ({}), command: ["jobs", "cancel"], flags: () => [],
  },
  {
    method: "BulkDeleteJobs", verb: "Delete", noun: "job", isAbout: "jobs", changed: "deleted", isDestructive: true,
    effect: "They are deleted with their histories and dead letters. Live runs finish first. This cannot be undone.",
    fields: [], options: () => ({}), command: ["jobs", "delete"], flags: () => [],
  },
  {
    method: "BulkRedriveDeadLetters", verb: "Redrive", noun: "dead letter", isAbout: "dead letters", changed: "redriven",
    effect: "Each runs again with the present definition of its job and all its attempts, paced by the recovery rate of its queue.",
    fields: [ignoreExclusions], options: (v) => ({ ignoreExclusions: isOn(v, "ignoreExclusions") }),
    command: ["dead-letters", "redrive"], flags: (o) => (o.ignoreExclusions ? ["--ignore-exclusions"] : []),
  },
  {
    method: "BulkDiscardDeadLetters", verb: "Discard", noun: "dead letter", isAbout: "dead letters", changed: "discarded", isDestructive: true,
    effect: "They are deleted without another run. The dead letter of a one-time job is the job itself, which is deleted. This cannot be undone.",
    fields: [], options: () => ({}), command: ["dead-letters", "discard"], flags: () => [],
  },
];

/** kindOf is the kind of a method. */
export const kindOf = (method: BulkMethod): BulkKind => bulkKinds.find((k) => k.method === method)!;

/** kindTitle names a change of so many matches. */
export const kindTitle = (kind: BulkKind, count: number): string => `${kind.verb} ${plural(count, kind.noun)}`;

/** matchAll is the filter that selects all of a namespace. */
export const matchAll = "id:*";
