// Changes of many matches, page by page. They go on while other screens are shown, and can be continued after a reload:
// all that a continuation needs is kept for this tab of the browser. The nodes change each match once, however often a
// page is sent.
import { effect, signal } from "@preact/signals";
import { call, type Body } from "../api/client";
import { toFailure, type Failure } from "../api/errors";
import type { BulkChangeResponse } from "../api/generated";
import { caller } from "../app/access";
import { notify } from "../app/notices";
import { plural } from "../format/text";
import { refreshAll } from "../live/query";
import { kindOf, type BulkMethod, type BulkOptions } from "./kinds";

/** MatchRequest says what is to be changed. */
export interface MatchRequest {
  method: BulkMethod;
  namespace: string;
  filter: string;
  options: BulkOptions;
}

/** MatchCount is the result of a dry run. */
export interface MatchCount {
  matched: number;
  /** names of the first 20. */
  names: string[];
  /** confirmation is the token that the change needs; unset while the count goes on. */
  confirmation?: string;
}

/** Refusals counts matches that were not changed for one reason. */
export interface Refusals {
  reason: string;
  message: string;
  count: number;
  names: string[];
}

/** Change is a change that has begun. */
export interface Change extends MatchRequest {
  requestId: string;
  /** identity is whose change it is; unset where callers have none. */
  identity?: string;
  confirmation: string;
  /** counted are the matches that the dry run found. */
  counted: number;
  /** pageToken is that of the next page; unset: the first one, or the nodes say where to continue. */
  pageToken?: string;
  matched: number;
  changed: number;
  refused: number;
  refusals: Refusals[];
  state: "running" | "stopped" | "failed" | "done";
  /** problem says why it stopped, if nobody asked it to. */
  problem?: string;
  /** pauseId of a pause: for a resumption of exactly these jobs. */
  pauseId?: string;
}

const storageKey = "fermata.changes";
const maxNames = 20;
const maxDone = 5;
const maxTries = 6;
const maxWait = 20_000;

/** changes are those of this tab, the last one first. */
export const changes = signal<Change[]>(loadChanges());

function loadChanges(): Change[] {
  try {
    const stored = JSON.parse(sessionStorage.getItem(storageKey) ?? "[]") as Change[];
    return stored.map((c) => (c.state === "running" ? { ...c, state: "stopped", problem: "The page was loaded again." } : c));
  } catch {
    return [];
  }
}

function storeChanges(all: Change[]): void {
  changes.value = all;
  try {
    sessionStorage.setItem(storageKey, JSON.stringify(all));
  } catch { // no room or not allowed: the change goes on, but not after a reload
  }
}

/** dropChanges forgets all of them: nobody finds them after a sign-out. One that runs ends after its page. */
export function dropChanges(): void {
  changes.value = [];
  try {
    sessionStorage.removeItem(storageKey);
  } catch { /* storage is forbidden: nothing is kept */ }
}

// Another person who signs in sees nothing of the changes before, also after a reload or a sign-in in another tab.
effect(() => {
  if (!caller.value) return;
  const identity = caller.value.identity ?? "";
  if (changes.peek().some((c) => (c.identity ?? "") !== identity)) dropChanges();
});

const findChange = (requestId: string) => changes.value.find((c) => c.requestId === requestId);

function updateChange(requestId: string, by: Partial<Change>): void {
  storeChanges(changes.value.map((c) => (c.requestId === requestId ? { ...c, ...by } : c)));
}

function callPage(r: MatchRequest, rest: Body<"BulkPauseJobs">, signal?: AbortSignal): Promise<BulkChangeResponse> {
  // The requests of all kinds have the same fields, but for their options.
  return call(r.method as "BulkPauseJobs", { namespace: r.namespace }, { ...r.options, filter: r.filter, ...rest }, { signal });
}

/** countMatches makes the dry run, and reports the count after each page. It throws a Failure. */
export async function countMatches(r: MatchRequest, report: (count: MatchCount) => void, signal: AbortSignal): Promise<void> {
  let names: string[] = [];
  let pageToken: string | undefined;
  do {
    const page = await callPage(r, { dryRun: true, pageToken }, signal);
    names = [...names, ...(page.names ?? [])].slice(0, maxNames);
    report({ matched: Number(page.totalMatched ?? 0), names, confirmation: page.confirmation });
    pageToken = page.nextPageToken || undefined;
  } while (pageToken);
}

/** startChange begins a change that was counted and confirmed. */
export function startChange(r: MatchRequest, count: MatchCount): void {
  const change: Change = {
    ...r, requestId: crypto.randomUUID(), identity: caller.value?.identity,
    confirmation: count.confirmation!, counted: count.matched, matched: 0, changed: 0, refused: 0, refusals: [], state: "running",
  };
  const done = changes.value.filter((c) => c.state === "done").slice(0, maxDone - 1);
  // It is stored before the first call: a reload in between must not lose it.
  storeChanges([change, ...changes.value.filter((c) => c.state !== "done" || done.includes(c))]);
  void runChange(change.requestId);
}

/** stopChange stops a change after its current page. */
export const stopChange = (requestId: string): void => updateChange(requestId, { state: "stopped", problem: undefined });

/** continueChange goes on with a change that stopped. */
export function continueChange(requestId: string): void {
  updateChange(requestId, { state: "running", problem: undefined });
  void runChange(requestId);
}

/** forgetChange removes a change from the list. What it has changed stays changed. */
export const forgetChange = (requestId: string): void => storeChanges(changes.value.filter((c) => c.requestId !== requestId));

const running = new Set<string>();

async function runChange(requestId: string): Promise<void> {
  if (running.has(requestId)) return;
  running.add(requestId);
  try {
    for (let c = findChange(requestId); c?.state === "running"; c = findChange(requestId)) {
      await takePage(c);
    }
  } catch (e) {
    recordFailure(requestId, toFailure(e));
  } finally {
    running.delete(requestId);
    void refreshAll();
  }
}

/** takePage sends one page, again if the error may pass. It throws a Failure. */
async function takePage(c: Change): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      recordPage(c, await callPage(c, { confirmation: c.confirmation, requestId: c.requestId, pageToken: c.pageToken }));
      return;
    } catch (e) {
      const failure = toFailure(e);
      if (!failure.isTransient || tries === maxTries || findChange(c.requestId)?.state !== "running") throw failure;
      await new Promise((resume) => setTimeout(resume, Math.max(Math.min(maxWait, 500 * 2 ** tries), failure.retryAfter * 1000)));
    }
  }
}

function recordPage(c: Change, page: BulkChangeResponse): void {
  const matched = Number(page.totalMatched ?? 0);
  const isNew = matched > c.matched; // otherwise it was counted before the page was loaded again
  const isDone = !page.nextPageToken;
  const state = findChange(c.requestId)?.state;
  if (!state) return; // it was stopped and forgotten while the page was on its way
  updateChange(c.requestId, {
    matched, changed: Number(page.totalChanged ?? 0), refused: Number(page.totalRefused ?? 0),
    refusals: isNew ? addRefusals(c.refusals, page.refusals ?? []) : c.refusals,
    pageToken: page.nextPageToken || undefined, pauseId: page.pauseId || c.pauseId, state: isDone ? "done" : state,
  });
  if (isDone) notify(`${summaryOf(findChange(c.requestId)!)}.`);
}

function addRefusals(before: Refusals[], page: NonNullable<BulkChangeResponse["refusals"]>): Refusals[] {
  const all = new Map(before.map((r) => [r.reason, r]));
  for (const r of page) {
    const old = all.get(r.reason ?? "");
    all.set(r.reason ?? "", {
      reason: r.reason ?? "", message: r.message ?? "", count: (old?.count ?? 0) + (r.count ?? 0),
      names: [...(old?.names ?? []), ...(r.names ?? [])].slice(0, maxNames),
    });
  }
  return [...all.values()];
}

function recordFailure(requestId: string, failure: Failure): void {
  const canContinue = failure.status !== 400; // such as a confirmation that has expired, or more matches than confirmed
  updateChange(requestId, { state: canContinue ? "stopped" : "failed", problem: failure.message });
}

/** summaryOf says how far a change is: 480 of 512 jobs paused, 2 refused. */
export function summaryOf(c: Change): string {
  const kind = kindOf(c.method);
  const total = c.state === "done" ? c.matched : Math.max(c.counted, c.matched);
  const of = c.changed === total ? "" : `${c.changed} of `;
  return `${of}${plural(total, kind.noun)} ${kind.changed}${c.refused > 0 ? `, ${c.refused} refused` : ""}`;
}
