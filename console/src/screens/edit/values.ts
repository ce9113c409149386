// Between a job and the texts of its form.
import type { ExclusionsPeriod, FieldInfo, Job, Lock } from "../../api/generated";
import { apiDuration, parseDuration, parseInput } from "../../format/duration";
import { payloadOfText, payloadText } from "../../format/payload";
import { apiName, infoOf, isShown, ownBackoff, ownRetries, scheduleKind, sections } from "./fields";

/** FormValues are the texts of the form, by path. A field that is not set is "". */
export type FormValues = Record<string, string>;

/** Problems are what is wrong, by path. "" is for what has no field. */
export type Problems = Record<string, string>;

type Tree = Record<string, unknown>;

/** allPaths are the paths of all fields of the form. */
const allPaths = sections.flatMap((s) => s.paths);

function valueAt(tree: unknown, path: string): unknown {
  return path.split(".").reduce<unknown>((at, name) => (at as Tree | undefined)?.[name], tree);
}

function setAt(tree: Tree, path: string, value: unknown): void {
  const names = path.split(".");
  const last = names.pop()!;
  const inner = names.reduce<Tree>((at, name) => (at[name] ??= {}) as Tree, tree);
  inner[last] = value;
}

/** sourceOf says where a value of a policy comes from; "job" for all other fields. */
export function sourceOf(job: Job, path: string): string {
  const [top, name = ""] = path.split(".");
  if (top !== "retryPolicy" && top !== "backoffPolicy") return "job";
  const sources = job[top]?.sources;
  return sources?.[apiName(name)] ?? sources?.["*"] ?? "job";
}

/** presetOf is the preset of a policy that was read. */
function presetOf(sources: Record<string, string> | undefined): string {
  const of = Object.values(sources ?? {}).find((s) => s.startsWith("preset "));
  return of ? of.slice("preset ".length) : "";
}

/** textOf is a value of the API as a text of the form. */
function textOf(value: unknown, info: FieldInfo): string {
  if (value === undefined || value === null) return "";
  switch (info.kind) {
    case "duration":
      return inputDuration(String(value));
    case "texts":
    case "numbers":
      return (value as unknown[]).join("\n");
    case "labels":
      return Object.entries(value as Record<string, string>).map(([k, v]) => `${k}=${v}`).join("\n");
    case "messages":
      return info.message === "Lock"
        ? (value as Lock[]).map((l) => (l.limit ? `${l.key} ${l.limit}` : l.key)).join("\n")
        : (value as ExclusionsPeriod[]).map((p) => `${p.startTime}/${p.endTime}`).join("\n");
    case "flag":
      return value === true ? "true" : "";
    case "choice":
      return /_UNSPECIFIED$/.test(String(value)) ? "" : String(value);
    case "bytes":
      return payloadText(String(value)) ?? "";
  }
  return String(value);
}

const inputUnits: Array<[number, string]> = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "m"], [1000, "s"], [1, "ms"]];

/** inputDuration is a duration of the API as parseInput reads it: "5400s" is 1h30m. */
export function inputDuration(text: string): string {
  let left = Math.round(parseDuration(text));
  if (left === 0) return "0s";
  let out = "";
  for (const [size, name] of inputUnits) {
    const n = Math.floor(left / size);
    if (n > 0) out += `${n}${name}`;
    left -= n * size;
  }
  return out;
}

/** valuesOf are the texts of a job. Values of policies that the job does not set itself stay empty. */
export function valuesOf(job: Job): FormValues {
  const values: FormValues = {};
  for (const path of allPaths) {
    const isOwn = sourceOf(job, path) === "job";
    values[path] = isOwn ? textOf(valueAt(job, path), infoOf(path)) : "";
  }
  const s = job.schedule;
  values[scheduleKind] = s?.cron ? "cron" : s?.interval ? "interval" : s?.calendar ? "calendar" : s?.once ? "once" : "";
  for (const [choice, policy] of [[ownRetries, "retryPolicy"], [ownBackoff, "backoffPolicy"]] as const) {
    const p = job[policy];
    values[`${policy}.preset`] ||= presetOf(p?.sources);
    const isOwn = p && (!p.sources || Object.values(p.sources).some((of) => of === "job" || of.startsWith("preset ")));
    values[choice] = isOwn ? "own" : "";
  }
  return values;
}

const lines = (text: string) => text.split("\n").map((l) => l.trim()).filter(Boolean);

/** parseText is a text of the form as a value of the API. It throws what is wrong, as a text. */
function parseText(text: string, info: FieldInfo): unknown {
  const trimmed = text.trim();
  switch (info.kind) {
    case "whole":
    case "number":
      if (trimmed === "" || !Number.isFinite(Number(trimmed)) || info.kind === "whole" && !Number.isInteger(Number(trimmed))) {
        throw info.kind === "whole" ? "want a whole number" : "want a number";
      }
      return Number(trimmed);
    case "duration": {
      const ms = parseInput(trimmed);
      if (ms === undefined) throw "want a duration such as 90s, 5m or 1h30m";
      return apiDuration(ms);
    }
    case "time":
      if (!/T.*(Z|[+-]\d\d:\d\d)$/.test(trimmed) || Number.isNaN(Date.parse(trimmed))) throw "want a time with its zone, such as 2030-01-31T12:00:00Z";
      return trimmed;
    case "texts":
      return lines(text);
    case "numbers":
      return lines(text).flatMap((l) => l.split(/[\s,]+/)).map((l) => parseText(l, { kind: "whole" }));
    case "labels":
      return Object.fromEntries(lines(text).map((l) => {
        const [key, value] = l.split(/=(.*)/s);
        if (value === undefined) throw `want key=value, not ${l}`;
        return [key, value];
      }));
    case "messages":
      return info.message === "Lock" ? lines(text).map(parseLock) : lines(text).map(parsePeriod);
    case "flag":
      return text === "true";
    case "bytes":
      return payloadOfText(text);
  }
  return trimmed;
}

function parseLock(line: string): Lock {
  const [key, limit] = line.split(/\s+(?=\d+$)/);
  return limit ? { key, limit: Number(limit) } : { key };
}

function parsePeriod(line: string): ExclusionsPeriod {
  const [startTime, endTime] = line.split("/");
  if (!endTime) throw `want start/end, such as 2030-01-31T12:00:00Z/2030-02-01T12:00:00Z, not ${line}`;
  const time: FieldInfo = { kind: "time" };
  return { startTime: parseText(startTime!, time) as string, endTime: parseText(endTime, time) as string };
}

const outputFields = ["name", "status", "etag", "createTime", "updateTime", "generation", "warnings", "payloadKeyId", "payloadSize"] as const;

/** jobOf is the job that the form describes, on top of what it was, with what is wrong with the texts. */
export function jobOf(values: FormValues, base: Job): { job: Job; problems: Problems } {
  const job: Tree = structuredClone(base) as Tree;
  const problems: Problems = {};
  for (const name of outputFields) delete job[name];
  const before = valuesOf(base);
  const changed = changedFields(values, before);
  for (const top of changed) delete job[top];
  for (const path of allPaths) {
    const text = values[path] ?? "";
    if (!changed.includes(path.split(".")[0]!) || text.trim() === "" || !isShown(path, values)) continue;
    try {
      setAt(job, path, parseText(text, infoOf(path)));
    } catch (e) {
      if (typeof e !== "string") throw e;
      problems[path] = e;
    }
  }
  if (changed.includes("payload")) delete job["payloadSealed"];
  if (values[ownRetries] === "own") job["retryPolicy"] ??= {};
  if (values[ownBackoff] === "own") job["backoffPolicy"] ??= {};
  const kind = values[scheduleKind];
  if (kind && kind !== "once" && changed.includes("schedule")) (job["schedule"] ??= {} as Tree) && ((job["schedule"] as Tree)[kind] ??= {});
  return { job: job as Job, problems };
}

const choiceOf: Record<string, string> = { [scheduleKind]: "schedule", [ownRetries]: "retryPolicy", [ownBackoff]: "backoffPolicy" };

/** changedFields are the fields of Job whose texts differ. */
export function changedFields(values: FormValues, before: FormValues): string[] {
  const differ = Object.keys(before).filter((path) => (values[path] ?? "") !== before[path]);
  return [...new Set(differ.map((path) => choiceOf[path] ?? path.split(".")[0]!))];
}

/** rebase puts the changes of a person on top of what others have changed meanwhile; both are the paths of both. */
export function rebase(mine: FormValues, before: FormValues, now: FormValues): { values: FormValues; both: string[] } {
  const values = { ...now };
  const both: string[] = [];
  for (const path of Object.keys(now)) {
    if ((mine[path] ?? "") === before[path]) continue;
    values[path] = mine[path] ?? "";
    if (now[path] !== before[path] && now[path] !== mine[path]) both.push(path);
  }
  return { values, both };
}

/** problemsOf are the invalid fields of a response as fields of the form. */
export function problemsOf(fields: Record<string, string>, toPath: (name: string) => string): Problems {
  const problems: Problems = {};
  for (const [name, text] of Object.entries(fields)) {
    const path = toPath(name);
    const at = path === "jobId" || allPaths.includes(path) ? path
      : path === "schedule" ? scheduleKind
        : allPaths.filter((p) => path.startsWith(`${p}.`) || p.startsWith(`${path}.`))[0] ?? "";
    problems[at] = problems[at] ? `${problems[at]}; ${text}` : at ? text : `${name}: ${text}`;
  }
  return problems;
}
