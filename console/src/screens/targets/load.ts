// Targets and locks come by pages of jobs: what several pages name is put together here.
import { call } from "../../api/client";
import type { LockStatus, Target } from "../../api/generated";

/** Found is a list that may have been cut. */
export interface Found<T> {
  all: T[];
  /** isCut: there are more jobs than were looked at. */
  isCut: boolean;
}

const maxPages = 10;
const targetPage = 1000;
const lockPage = 250;

interface Page<T> {
  items: T[];
  next: string | undefined;
}

async function loadPages<T>(read: (pageToken: string | undefined) => Promise<Page<T>>, keyOf: (t: T) => string, join: (a: T, b: T) => T): Promise<Found<T>> {
  const found = new Map<string, T>();
  let token: string | undefined;
  for (let pages = 0; pages < maxPages; pages++) {
    const page = await read(token);
    for (const item of page.items) {
      const before = found.get(keyOf(item));
      found.set(keyOf(item), before ? join(before, item) : item);
    }
    token = page.next;
    if (!token) break;
  }
  return { all: [...found.values()], isCut: !!token };
}

const sum = (a: number | undefined, b: number | undefined) => (a ?? 0) + (b ?? 0);

/** loadTargets reads the targets that jobs name. */
export const loadTargets = (namespace: string, signal: AbortSignal): Promise<Found<Target>> => loadPages(
  async (pageToken) => {
    const r = await call("ListTargets", { namespace, pageSize: targetPage, pageToken }, undefined, { signal });
    return { items: r.targets ?? [], next: r.nextPageToken };
  },
  (t) => `${t.parent}/${t.target}`,
  (a, b) => ({ ...b, jobs: sum(a.jobs, b.jobs), heldJobs: sum(a.heldJobs, b.heldJobs) }),
);

/** loadLocks reads the locks that jobs name. */
export const loadLocks = (namespace: string, signal: AbortSignal): Promise<Found<LockStatus>> => loadPages(
  async (pageToken) => {
    const r = await call("ListLocks", { namespace, pageSize: lockPage, pageToken }, undefined, { signal });
    return { items: r.locks ?? [], next: r.nextPageToken };
  },
  (l) => `${l.parent}/${l.key}`,
  (a, b) => ({ ...b, jobs: sum(a.jobs, b.jobs), capacity: Math.max(a.capacity ?? 0, b.capacity ?? 0) }),
);
