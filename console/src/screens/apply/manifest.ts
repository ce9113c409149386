// Files with jobs, as the command fermata apply reads them: YAML or JSON documents, or the JSON lines of an export.
import { YAMLException } from "js-yaml";
import { jobMessages, type DesiredJob, type FieldInfo, type Job } from "../../api/generated";
import { apiDuration, parseInput } from "../../format/duration";
import { payloadOfText } from "../../format/payload";
import { encodeHandlerPayload } from "./handler_payload";
import { readYaml } from "./yaml";

/** Fault is one thing that is wrong with a file. */
export interface Fault {
  file: string;
  /** line from 1; unset if only the field is known. */
  line?: number;
  /** field is a path in the file; "" for all of it. */
  field: string;
  text: string;
}

/** TextFile is a file by its name. */
export interface TextFile {
  name: string;
  text: string;
}

/** FileJob is a job of a file. */
export interface FileJob {
  file: string;
  desired: DesiredJob;
}

/** Content is what files say. */
export interface Content {
  jobs: FileJob[];
  faults: Fault[];
}

/** mostJobs is how many jobs one call takes. */
export const mostJobs = 1000;

/** mostBytes bounds all files; mostValues bounds their values, those of aliases each time. */
const mostBytes = 4 << 20, mostValues = 200_000, deepest = 64;

type Fields = Record<string, unknown>;

/** readFiles reads files for a namespace. Nothing is returned of a job with a field that was not understood. */
export function readFiles(files: TextFile[], namespace: string, owner: string): Content {
  const content: Content = { jobs: [], faults: [] };
  if (files.reduce((n, f) => n + f.text.length, 0) > mostBytes) {
    content.faults.push({ file: files[0]!.name, field: "", text: "the files have more than 4 MiB: use the command fermata apply" });
    return content;
  }
  const budget = { left: mostValues };
  for (const f of files) new Reader(f.name, namespace, owner, content, budget).read(f.text);
  const seen = new Map<string, string>();
  for (const { file, desired } of content.jobs) {
    const first = seen.get(desired.jobId!);
    if (first !== undefined) content.faults.push({ file, field: "id", text: `job ${desired.jobId} is in ${first} already` });
    seen.set(desired.jobId!, file);
  }
  if (content.jobs.length > mostJobs) {
    content.faults.push({ file: files[0]!.name, field: "", text: `there are ${content.jobs.length} jobs, at most ${mostJobs} are applied here: use the command fermata apply` });
  }
  return content;
}

const isFields = (v: unknown): v is Fields => typeof v === "object" && v !== null && !Array.isArray(v) && !(v instanceof Date);

/** unkeptIn says what a payload has that JSON of the browser would change; "" if there is nothing. */
function unkeptIn(value: unknown): string {
  if (value instanceof Date) return "has a time: quote it";
  if (typeof value === "number" && (!Number.isFinite(value) || Number.isInteger(value) && !Number.isSafeInteger(value))) return `has the number ${value}: quote it`;
  if (typeof value !== "object" || value === null) return "";
  return Object.values(value).map(unkeptIn).find(Boolean) ?? "";
}

class Reader {
  constructor(private file: string, private namespace: string, private owner: string, private content: Content, private budget: { left: number }) {}

  private wrong(field: string, text: string, line?: number): void {
    if (this.content.faults.length < 200) this.content.faults.push({ file: this.file, line, field, text });
  }

  read(text: string): void {
    try {
      for (const document of this.documents(text)) {
        this.spend(document);
        this.document(document);
      }
    } catch (e) {
      if (e instanceof YAMLException) this.wrong("", `invalid YAML: ${e.reason}`, e.mark ? e.mark.line + 1 : undefined);
      else this.wrong("", e instanceof Error ? e.message : String(e));
    }
  }

  private documents(text: string): unknown[] {
    const lines = text.trim().split("\n").map((l) => l.trim()).filter(Boolean);
    if (lines.length > 1 && lines.every((l) => l.startsWith("{") && l.endsWith("}"))) {
      return lines.map((l, i) => {
        try {
          return JSON.parse(l) as unknown;
        } catch {
          this.wrong("", "is no JSON, as the lines of an export are", i + 1);
          return null;
        }
      });
    }
    return text.trim() === "" ? [] : readYaml(text);
  }

  /** spend counts values, so that aliases of aliases do not take all memory. */
  private spend(value: unknown, depth = 0): void {
    if (depth > deepest) throw new Error("is nested too deeply, or an alias contains itself");
    if (--this.budget.left < 0) throw new Error(`the files have more than ${mostValues} values, aliases expanded`);
    if (typeof value === "object" && value !== null) Object.values(value).forEach((v) => this.spend(v, depth + 1));
  }

  private document(value: unknown): void {
    if (value === null || value === undefined) return;
    if (Array.isArray(value)) value.forEach((v, i) => this.item(v, "", `[${i}]`));
    else if (!isFields(value)) this.wrong("", `a job is a mapping, not ${kindOf(value)}`);
    else if ("jobs" in value || "queues" in value) this.parts(value);
    else this.job(value, "", "");
  }

  private parts(value: Fields): void {
    for (const [name, part] of Object.entries(value)) {
      if (name === "queues" && part !== null) this.wrong(name, "limits of queues are not applied here: use the command fermata apply, or the page of the queue");
      else if (name !== "jobs" && name !== "queues") this.wrong(name, 'is unknown; a document with "jobs" or "queues" has nothing else');
      else if (Array.isArray(part)) part.forEach((v, i) => this.item(v, "", `jobs[${i}]`));
      else if (isFields(part)) Object.entries(part).forEach(([id, v]) => this.item(v, id, `jobs.${id}`));
      else if (part !== null) this.wrong(name, `is ${kindOf(part)}, want a mapping`);
    }
  }

  private item(value: unknown, id: string, path: string): void {
    if (value === null) return;
    if (isFields(value)) this.job(value, id, path);
    else this.wrong(path, `a job is a mapping, not ${kindOf(value)}`);
  }

  private job(fields: Fields, key: string, path: string): void {
    const before = this.content.faults.length;
    const at = (name: string) => (path ? `${path}.${name}` : name);
    if ("apiVersion" in fields) return this.wrong(at("apiVersion"), "this is a Kubernetes object; make a job of a CronJob with: fermata import cronjob");
    if (isFields(fields["job"])) return this.wrong(at("job"), "this is a job with its states, which fermata import --states reads");
    const { id: givenId, paused, name, ...rest } = fields;
    const desired: DesiredJob = { jobId: this.idOf(givenId, name, key, at) };
    if (typeof paused === "boolean") desired.paused = paused;
    else if (paused !== undefined && paused !== null) this.wrong(at("paused"), `is ${kindOf(paused)}, want true or false`);
    desired.job = this.message("Job", this.withPayload(rest, at), path) as Job;
    if (this.owner) desired.job.labels = { ...desired.job.labels, "fermata.io/owner": this.owner };
    if (this.content.faults.length === before) this.content.jobs.push({ file: this.file, desired });
  }

  private idOf(given: unknown, name: unknown, key: string, at: (name: string) => string): string {
    let id = key;
    if (typeof given === "string") {
      if (key !== "" && key !== given) this.wrong(at("id"), `is ${JSON.stringify(given)}, but the key is ${JSON.stringify(key)}`);
      id = given;
    } else if (given !== undefined && given !== null) {
      this.wrong(at("id"), `is ${kindOf(given)}, want text: quote it`); // YAML changes numbers: 007 is 7
      return "";
    }
    if (typeof name === "string" && name !== "") {
      const m = name.match(/^namespaces\/([^/]+)\/jobs\/([^/]+)$/);
      if (!m || id !== "" && id !== m[2]) this.wrong(at("name"), `is ${JSON.stringify(name)}, want namespaces/{namespace}/jobs/{job}, the same job as id`);
      else if (m[1] !== this.namespace) this.wrong(at("name"), `job ${m[2]} belongs to namespace ${m[1]}`);
      else id = m[2]!;
    }
    if (id === "") this.wrong(at("id"), "is missing");
    return id;
  }

  /** withPayload puts the payload in place of http, exec and payload_text. */
  private withPayload(fields: Fields, at: (name: string) => string): Fields {
    const { http, exec, payload_text: text, ...job } = fields;
    const given = [["http", http], ["exec", exec], ["payload_text", text], ["payload", job["payload"]], ["payload_json", job["payload_json"] ?? job["payloadJson"]]]
      .filter(([, v]) => v !== undefined && v !== null);
    if (given.length > 1) {
      this.wrong(at(String(given[1]![0])), "there may be one of payload, payload_text, payload_json, http and exec");
      return job;
    }
    const [name, value] = given[0] ?? [];
    const unkept = name === "payload" || name === "payload_text" ? "" : unkeptIn(value);
    if (unkept) {
      this.wrong(at(String(name)), unkept);
      return job;
    }
    if (name === "payload_text") {
      if (typeof value === "string") job["payload"] = payloadOfText(value);
      else this.wrong(at("payload_text"), `is ${kindOf(value)}, want text: quote it`);
    } else if (name === "http" || name === "exec") {
      if (job["handler"] !== undefined && job["handler"] !== name) this.wrong(at(name), `is the payload of handler ${name}, not of ${String(job["handler"])}`);
      else if (!isFields(value)) this.wrong(at(name), `is ${kindOf(value)}, want a mapping`);
      else Object.assign(job, { handler: name, payload: payloadOfText(encodeHandlerPayload(name, value)) });
    }
    return job;
  }

  /** message is a mapping of a file in the JSON form of the API. */
  private message(type: string, fields: Fields, path: string): Fields {
    const known = jobMessages[type]!;
    const out: Fields = {};
    let one = "";
    for (const [key, value] of Object.entries(fields)) {
      const name = key.replace(/_([a-z])/g, (_, c: string) => c.toUpperCase());
      const at = path ? `${path}.${key}` : key;
      const info = Object.hasOwn(known, name) ? known[name] : undefined;
      if (!info) this.wrong(at, `is unknown${elsewhere(type, key)}`);
      if (!info || value === null || value === undefined) continue;
      if (info.kind === "output") {
        if (name === "payloadSealed" && value === true) out[name] = true; // the stored payload stays
        continue;
      }
      if (info.oneof && one) this.wrong(at, `there may be one of ${one} and ${key}`);
      if (info.oneof) one = key;
      out[name] = this.value(info, value, at);
    }
    return out;
  }

  private value(info: FieldInfo, value: unknown, at: string): unknown {
    switch (info.kind) {
      case "message":
        return isFields(value) ? this.message(info.message!, value, at) : this.wrong(at, `is ${kindOf(value)}, want a mapping`);
      case "messages":
      case "texts":
      case "numbers":
        if (!Array.isArray(value)) return this.wrong(at, `is ${kindOf(value)}, want a list`);
        return value.map((v: unknown, i) => this.value({ ...info, kind: listed[info.kind as keyof typeof listed] }, dayOf(v), `${at}[${i}]`));
      case "labels":
        if (!isFields(value)) return this.wrong(at, `is ${kindOf(value)}, want a mapping of text to text: quote keys and values`);
        return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, this.value({ kind: "text" }, v, `${at}.${k}`)]));
      case "json":
        return value;
    }
    const [parsed, want] = scalar(info, value);
    return want === "" ? parsed : this.wrong(at, `is ${kindOf(value)}, want ${want}`);
  }
}

const listed = { messages: "message", texts: "text", numbers: "whole" } as const;

/** dayOf restores days in lists, such as 2026-12-25, which YAML reads as times. */
const dayOf = (value: unknown): unknown =>
  value instanceof Date && value.getTime() % 86_400_000 === 0 ? value.toISOString().slice(0, 10) : value;

/** scalar is a single value in the JSON form of the API, or what it should be. */
function scalar(info: FieldInfo, value: unknown): [unknown, string] {
  const text = typeof value === "string" ? value : info.kind === "time" && value instanceof Date ? value.toISOString() : undefined;
  const check = (isRight: boolean, want: string, parsed: unknown = value): [unknown, string] => (isRight ? [parsed, ""] : [undefined, want]);
  switch (info.kind) {
    case "flag":
      return check(typeof value === "boolean", "true or false");
    case "whole":
      return check(Number.isSafeInteger(value) || text !== undefined && /^-?\d+$/.test(text), "a whole number");
    case "number":
      return check(Number.isFinite(value), "a number");
    case "bytes":
      return check(text !== undefined && /^[\w+/-]*={0,2}$/.test(text), "base64; payload_text takes text as it is");
    case "time":
      return check(text !== undefined && /T.*(Z|[+-]\d\d:\d\d)$/i.test(text) && !Number.isNaN(Date.parse(text)), "a time such as 2030-01-31T12:00:00Z", text);
    case "duration": {
      const ms = text === "0" ? 0 : text === undefined ? undefined : parseInput(text);
      return check(ms !== undefined, "a duration such as 90s, 5m, 7d or 2w", apiDuration(ms ?? 0));
    }
    case "choice": {
      const prefix = info.values![0]!.replace(/UNSPECIFIED$/, "");
      const long = info.values!.find((v) => v === text || v === prefix + (text ?? "").toUpperCase().replaceAll("-", "_"));
      return check(long !== undefined, `one of ${info.values!.slice(1).map((v) => v.slice(prefix.length).toLowerCase()).join(", ")}`, long);
    }
  }
  return check(text !== undefined, "text: quote it");
}

/** elsewhere has hints for fields that are often written at the wrong level. */
function elsewhere(type: string, key: string): string {
  const meant: Record<string, Record<string, string>> = {
    Schedule: { every: "interval: {every: 30s}", expression: "cron: {expressions: [...]}", expressions: "cron: {expressions: [...]}", at: "once" },
    Job: { cron: "schedule: {cron: {expressions: [...]}}", every: "schedule: {interval: {every: 30s}}", interval: "schedule: {interval: {every: 30s}}" },
  };
  const text = meant[type] && Object.hasOwn(meant[type], key) ? meant[type][key] : undefined;
  return text ? `; did you mean ${text}?` : "";
}

function kindOf(value: unknown): string {
  if (value === null || value === undefined) return "nothing";
  if (Array.isArray(value)) return "a list";
  if (value instanceof Date) return "a time";
  if (typeof value === "string") return `the text ${JSON.stringify(value.slice(0, 40))}`;
  if (typeof value === "number") return `the number ${value}`;
  return typeof value === "boolean" ? String(value) : "a mapping";
}
