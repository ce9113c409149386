import type { DeadLetter } from "../../api/generated";
import { parseJobName } from "../../api/names";
import { quoteParts, quoteText } from "../../format/text";

/** GroupBy is what the dead letters of a group have in common. */
export type GroupBy = "error" | "job" | "queue";

/** groupKeys are all of them. */
export const groupKeys: GroupBy[] = ["error", "job", "queue"];

/** Group are dead letters of one namespace with something in common. */
export interface Group {
  key: string;
  namespace: string;
  title: string;
  /** letters, the newest first. */
  letters: DeadLetter[];
  first: string | undefined;
  last: string | undefined;
}

/** groupLetters groups dead letters, the largest group first. */
export function groupLetters(letters: DeadLetter[], by: GroupBy): Group[] {
  const groups = new Map<string, Group>();
  for (const d of letters) {
    const { namespace, job } = parseJobName(d.name);
    const title = by === "error" ? errorPattern(d.run?.error ?? "") : by === "job" ? job : d.queue ?? "";
    const key = `${namespace}\n${title}`;
    const group = groups.get(key) ?? { key, namespace, title, letters: [], first: undefined, last: undefined };
    group.letters.push(d);
    groups.set(key, group);
  }
  for (const g of groups.values()) {
    g.letters.sort((a, b) => endOf(b) - endOf(a));
    g.first = g.letters.at(-1)?.run?.finishTime;
    g.last = g.letters[0]?.run?.finishTime;
  }
  return [...groups.values()].sort((a, b) => b.letters.length - a.letters.length || a.key.localeCompare(b.key));
}

const endOf = (d: DeadLetter) => Date.parse(d.run?.finishTime ?? "") || 0;

/** errorPattern is an error without what differs from run to run: long numbers, and ids. */
export function errorPattern(error: string): string {
  const line = error.split("\n", 1)[0]!.trim();
  if (line === "") return "(no error text)";
  return line.replace(/\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gi, "…").replace(/\b[0-9a-f]{16,}\b/gi, "…").replace(/\d{4,}/g, "…");
}

// maxFilterText bounds the text in a filter, which may have 2,048 bytes.
const maxFilterText = 400;

// leastOfPattern is how many letters and digits a pattern of errors has at least.
const leastOfPattern = 8;

/**
 * filterOfGroup selects a group in the language of the filter, within the queue that the list shows. An error is
 * selected by what does not differ from run to run, whatever is in between.
 */
export function filterOfGroup(g: Group, by: GroupBy, queue: string | undefined): string {
  const ofQueue = queue && by !== "queue" ? [`queue = ${quoteText(queue)}`] : [];
  return [...ofQueue, conditionOf(g, by)].join(" AND ");
}

function conditionOf(g: Group, by: GroupBy): string {
  if (by !== "error") return `${by === "job" ? "id" : "queue"} = ${quoteText(g.title)}`;
  const errors = g.letters.map((d) => d.run?.error ?? "");
  const title = g.title === errorPattern("") ? "" : g.title;
  const parts = title.slice(0, maxFilterText).split("…");
  if (parts.join("").replace(/\W/g, "").length < leastOfPattern) { // rather than all errors with a letter of it
    const first = errors[0]!;
    return `last_error = ${quoteParts(first.length > maxFilterText ? [first.slice(0, maxFilterText), ""] : [first])}`;
  }
  if (errors.some((e) => !e.startsWith(parts[0]!))) parts.unshift("");
  if (errors.some((e) => !e.endsWith(parts.at(-1)!))) parts.push("");
  return `last_error = ${quoteParts(parts)}`;
}
