// The fields in which two definitions of a job differ, each with both values as text.
import type { Job } from "../api/generated";
import { formatSpan } from "./duration";

/** Difference is a field with its values; undefined: it is not set there. */
export interface Difference {
  /** path as in the API reference: retry_policy.max_attempts. */
  path: string;
  from: string | undefined;
  to: string | undefined;
}

/** findDifferences compares fields of Job, by their names in the API, value by value. */
export function findDifferences(from: Job, to: Job, fields: string[]): Difference[] {
  return fields.flatMap((name) => {
    const a = leavesOf(name, valueOf(from, name));
    const b = leavesOf(name, valueOf(to, name));
    const paths = [...new Set([...a.keys(), ...b.keys()])].filter((path) => a.get(path) !== b.get(path)).sort();
    // A value that neither has, such as that of a sealed payload, differs all the same.
    return paths.length > 0 ? paths.map((path) => ({ path, from: a.get(path), to: b.get(path) })) : [{ path: name, from: undefined, to: undefined }];
  });
}

const camelCase = (name: string) => name.replace(/_(\w)/g, (_, c: string) => c.toUpperCase());
const snakeCase = (name: string) => name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);

function valueOf(job: Job, field: string): unknown {
  const value = (job as Record<string, unknown>)[camelCase(field)];
  return field === "payload" && typeof value === "string" ? decodePayload(value) : value;
}

/** decodePayload is a payload as the value of its JSON, otherwise as text, otherwise as base64. */
function decodePayload(base64: string): unknown {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)));
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  } catch {
    return base64;
  }
}

/** freeNames are the fields whose keys are the user's own. */
const freeNames = new Set(["labels", "payload"]);

function leavesOf(field: string, value: unknown): Map<string, string> {
  const leaves = new Map<string, string>();
  const isFree = freeNames.has(field);
  const visit = (path: string, v: unknown) => {
    if (v === undefined) return;
    const entries = typeof v === "object" && v !== null && !Array.isArray(v) ? Object.entries(v) : [];
    if (entries.length === 0) leaves.set(path, isFree ? JSON.stringify(v) : textOf(v));
    for (const [key, child] of entries) visit(`${path}.${isFree ? key : snakeCase(key)}`, child);
  };
  visit(field, value);
  return leaves;
}

function textOf(value: unknown): string {
  if (typeof value !== "string") return JSON.stringify(value);
  return /^\d+(\.\d+)?s$/.test(value) ? formatSpan(value) : value;
}
