// The fields of the form, by their paths in the JSON form of the API. Kinds and texts are those of the API reference.
import { jobMessages, type FieldInfo } from "../../api/generated";

/** Section is a part of the form. */
export interface Section {
  title: string;
  /** choice is a field of the form alone, such as the kind of the schedule. */
  choice?: string;
  paths: string[];
  /** isMore: it is closed until it is opened, or has a value or an error. */
  isMore?: boolean;
}

/** infoOf is what the API says of a field, by its path. It throws for a path that the API does not have. */
export function infoOf(path: string): FieldInfo {
  let message = "Job";
  let info: FieldInfo | undefined;
  for (const name of path.split(".")) {
    info = jobMessages[message]?.[name];
    if (!info) throw new Error(`the API has no field ${path}`);
    message = info.message ?? "";
  }
  return info!;
}

/** leavesOf are the paths of all values below a path, in the order of the API. */
function leavesOf(path: string): string[] {
  const info = infoOf(path);
  if (info.kind !== "message") return info.kind === "output" || path.endsWith(".sources") ? [] : [path];
  return Object.keys(jobMessages[info.message!]!).flatMap((name) => leavesOf(`${path}.${name}`));
}

/** scheduleKind, ownRetries and ownBackoff are choices of the form that are no field of the API. */
export const scheduleKind = "$schedule", ownRetries = "$retries", ownBackoff = "$backoff";

/** scheduleKinds are the kinds of a schedule. */
export const scheduleKinds = [
  { value: "", text: "On request only" },
  { value: "cron", text: "Cron expressions" },
  { value: "interval", text: "Every so often" },
  { value: "calendar", text: "Days, weeks or months" },
  { value: "once", text: "Once" },
];

/** sections are all fields of the form. */
export const sections: Section[] = [
  { title: "What runs", paths: ["handler", "payload", "queue", "priority", "timeout", "target", "labels"] },
  {
    title: "When", choice: scheduleKind,
    paths: ["schedule.once", ...leavesOf("schedule.cron"), ...leavesOf("schedule.interval"), ...leavesOf("schedule.calendar"), "schedule.jitter"],
  },
  {
    title: "When not, and until when", isMore: true,
    paths: [...leavesOf("schedule.exclusions"), "schedule.startTime", "schedule.endTime", "schedule.maxRuns"],
  },
  { title: "Retries of one run", isMore: true, choice: ownRetries, paths: leavesOf("retryPolicy") },
  { title: "Backoff after failed runs", isMore: true, choice: ownBackoff, paths: [...leavesOf("backoffPolicy"), "pauseAfterFailures"] },
  { title: "Overlap, locks and missed times", isMore: true, paths: ["overlapPolicy", "overlapLimit", "locks", ...leavesOf("misfirePolicy")] },
  { title: "Limits and what is kept", isMore: true, paths: ["timeoutGrace", "maxLag", "historyLimit", "deadLetterTtl", "retention"] },
];

/** isShown: the choices of the form leave the field in. */
export function isShown(path: string, choices: Record<string, string>): boolean {
  const [top, kind] = path.split(".");
  if (top === "retryPolicy") return choices[ownRetries] === "own";
  if (top === "backoffPolicy") return choices[ownBackoff] === "own";
  if (top !== "schedule") return true;
  const chosen = choices[scheduleKind] ?? "";
  if (kind === "cron" || kind === "interval" || kind === "calendar" || kind === "once") return kind === chosen;
  if (chosen === "once") return false;
  if (path === "schedule.exclusions.timeZone") return chosen === "interval";
  return chosen !== "";
}

/** labelOf is the name of a field for people: schedule.cron.timeZone is "Time zone". */
export function labelOf(path: string): string {
  const parts = path.split(".");
  const name = parts.at(-1)!;
  const words = name.replace(/([A-Z])/g, (c) => ` ${c.toLowerCase()}`).replace("dst ", "DST ").replace(/ ttl$/, " TTL");
  const full = parts.at(-2) === "jitter" ? `jitter ${words}` : parts.at(-2) === "exclusions" && name !== "timeZone" ? `excluded ${words}` : words;
  return full.charAt(0).toUpperCase() + full.slice(1);
}

/** apiName is a path as the API writes it: retry_policy.base_delay. */
export const apiName = (path: string): string => path.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);

/** formPath is a path of an error of the API as one of the form: job.schedule.cron.expressions[0]. */
export const formPath = (name: string): string =>
  name.replace(/^(.*\b)?job\./, "").replace(/\[[^\]]*\]/g, "").replace(/_([a-z])/g, (_, c: string) => c.toUpperCase());
