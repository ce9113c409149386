import { readFile, rename, writeFile } from "node:fs/promises";
import type { Event } from "../gen/fermata/v1/event_service_pb.js";
import type { Calls } from "./calls.js";
import { toFermataError } from "./errors.js";
import { type TimeInput, toTimestamp } from "./messages.js";
import { delayAfter, pause } from "./retry.js";
import { type OptionNames, requireKnownOptions } from "../options.js";

/** EventFilter selects events. Fields that are not set select all. */
export interface EventFilter {
  /** allNamespaces selects the events of all namespaces and of the cluster, instead of the client's namespace. */
  allNamespaces?: boolean;
  queues?: string[];
  /** jobs are ids of jobs. */
  jobs?: string[];
  /** kinds are kinds such as "run.dead", or families such as "run.*". */
  kinds?: string[];
  labels?: Record<string, string>;
  /** resume stores how far the events were read, so that the next process continues there. */
  resume?: ResumeStore;
  /** resumeToken continues after the batch that had this token. */
  resumeToken?: string;
  /** since starts with the events that are kept from this time on. Default: new events only. */
  since?: TimeInput;
  /** stopAtEnd ends after the events that existed when the first stream began. */
  stopAtEnd?: boolean;
  signal?: AbortSignal;
}

const filterNames: OptionNames<EventFilter> = {
  allNamespaces: true,
  queues: true,
  jobs: true,
  kinds: true,
  labels: true,
  resume: true,
  resumeToken: true,
  since: true,
  stopAtEnd: true,
  signal: true,
};

/** EventBatch is a batch of events, which may be empty. resumeToken continues after it. */
export interface EventBatch {
  events: Event[];
  resumeToken: string;
}

/** ResumeStore keeps a resume token between processes. */
export interface ResumeStore {
  read(): Promise<string | undefined>;
  write(token: string): Promise<void>;
}

/** fileToken keeps a resume token in a file. */
export function fileToken(path: string): ResumeStore {
  return {
    async read() {
      try {
        return (await readFile(path, "utf8")).trim() || undefined;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
        throw error;
      }
    },
    async write(token) {
      await writeFile(`${path}.new`, token);
      await rename(`${path}.new`, path);
    },
  };
}

/** watchEvents returns single events. The token of a batch is stored when the caller asks for what follows it, so that
 * an event whose handling was cut off is delivered again. */
export async function* watchEvents(calls: Calls, filter: EventFilter): AsyncGenerator<Event, void, undefined> {
  const stored = filter.resumeToken ?? (await filter.resume?.read());
  let written = stored;
  for await (const batch of watchBatches(calls, { ...filter, resumeToken: stored ?? "" })) {
    yield* batch.events;
    if (filter.resume && batch.resumeToken !== written) {
      await filter.resume.write(batch.resumeToken);
      written = batch.resumeToken;
    }
  }
}

/** watchBatches returns batches of events. A broken stream is resumed, also at another node, without gaps and without
 * duplicates. Only the first stream is limited to the client's attempts. */
export async function* watchBatches(calls: Calls, filter: EventFilter): AsyncGenerator<EventBatch, void, undefined> {
  requireKnownOptions("events", filter, filterNames);
  const { signal } = filter;
  let resumeToken = filter.resumeToken ?? "";
  let received = false;
  for (let attempt = 1; ; attempt++) {
    const request = {
      parent: filter.allNamespaces ? "" : calls.parent,
      queues: filter.queues,
      jobIds: filter.jobs,
      kinds: filter.kinds,
      labels: filter.labels,
      resumeToken,
      stopAtEnd: filter.stopAtEnd,
      startTime: filter.since && resumeToken === "" ? toTimestamp(filter.since) : undefined,
    };
    try {
      for await (const batch of calls.events.watchEvents(request, { signal })) {
        attempt = 1;
        received = true;
        yield { events: batch.events, resumeToken: batch.resumeToken };
        resumeToken = batch.resumeToken;
      }
      return;
    } catch (thrown) {
      const error = toFermataError(thrown, signal);
      const delay = delayAfter(error, attempt);
      if (signal?.aborted || delay === undefined || (!received && attempt >= calls.attempts)) throw error;
      await pause(delay, signal);
    }
  }
}
