import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type Job,
  type JobStatus_State,
  JobSchema,
  type Outcome,
  type Run,
  Run_State,
  type Hint,
  HintSchema,
  type RetryPolicy,
  type BackoffPolicy,
  RetryPolicySchema,
  BackoffPolicySchema,
  ScheduleSchema,
} from "../gen/fermata/v1/job_pb.js";
import {
  type BatchCreateJobsRequestSchema,
  type DeadLetter,
  type ExplainJobResponse,
  type PreviewScheduleResponse,
  RunJobRequest_Backoff,
  type RedriveDeadLettersResponse,
  type TopJobsResponse,
  TopJobsRequest_Kind,
  type UpcomingRun,
} from "../gen/fermata/v1/job_service_pb.js";
import { OverlapPolicy } from "../gen/fermata/v1/job_pb.js";
import { type OptionNames, requireKnownOptions } from "../options.js";
import { type Attempt, type CallOptions, type Calls, newRequestId, type RequestOptions } from "./calls.js";
import { errorOfStatus, FermataError, isFermataError } from "./errors.js";
import {
  type DurationInput,
  type Input,
  type TimeInput,
  toBytes,
  toMessage,
  toMilliseconds,
  toTimestamp,
} from "./messages.js";
import { pause } from "./retry.js";
import type { ScheduleInput } from "./schedules.js";

/** JobInput is a job as callers write it. */
export type JobInput = Input<Job>;

/** JobFilter selects jobs. Fields that are not set select all. */
export interface JobFilter {
  queue?: string;
  idPrefix?: string;
  labels?: Record<string, string>;
  state?: JobStatus_State;
  /** minFailures is the least number of failed runs in a row. */
  minFailures?: number;
  /** filter is in the language of AIP-160, such as `queue = mail AND failing = true`. */
  filter?: string;
  /** orderBy is "id", "next_due_time", "consecutive_failures desc" or "last_run_time desc". */
  orderBy?: string;
  allNamespaces?: boolean;
  /** recentRuns adds so many of the latest runs to each job, 1 to 10: status.recentRuns. */
  recentRuns?: number;
  /** pageSize is the number of jobs per call, 1 to 1000. Default 100. */
  pageSize?: number;
}

/** RunBackoff is what a manual run does to the failure count of its job. */
export type RunBackoff = "reset" | "keep" | "reset-on-success";

const runBackoffs: Record<RunBackoff, RunJobRequest_Backoff> = {
  reset: RunJobRequest_Backoff.RESET,
  keep: RunJobRequest_Backoff.KEEP,
  "reset-on-success": RunJobRequest_Backoff.RESET_ON_SUCCESS,
};

/** RunOptions configure a manual run. */
export interface RunOptions extends RequestOptions {
  /** backoff is what the run does to the failure count of its job. Default "reset". */
  backoff?: RunBackoff;
  /** payload is that of this run alone, in place of the job's: bytes, or a text, which is sent as UTF-8. Such a run
   * joins no other, and does not count for the backoff of the job. */
  payload?: Uint8Array | string;
  /** ignoreExclusions starts the run also at a time that the schedule excludes. */
  ignoreExclusions?: boolean;
  /** wait waits for the end of the run, with all its attempts, until the signal is aborted: a duration bounds it. */
  wait?: boolean | DurationInput;
}

const requestNames = { requestId: true } as const;

const runNames = { ...requestNames, backoff: true, payload: true, ignoreExclusions: true, wait: true } as const;

const jobFilterNames: OptionNames<JobFilter> = {
  queue: true,
  idPrefix: true,
  labels: true,
  state: true,
  minFailures: true,
  filter: true,
  orderBy: true,
  allNamespaces: true,
  recentRuns: true,
  pageSize: true,
};

/** EndedRunsFilter selects runs that have ended. Fields that are not set select all. */
export interface EndedRunsFilter {
  since?: TimeInput;
  until?: TimeInput;
  outcomes?: Outcome[];
  queue?: string;
  filter?: string;
  allNamespaces?: boolean;
  pageSize?: number;
}

const endedRunsFilterNames: OptionNames<EndedRunsFilter> = {
  since: true,
  until: true,
  outcomes: true,
  queue: true,
  filter: true,
  allNamespaces: true,
  pageSize: true,
};

/** UpcomingFilter selects planned runs. Fields that are not set select all. */
export interface UpcomingFilter {
  filter?: string;
  allNamespaces?: boolean;
  excludeHeld?: boolean;
  pageSize?: number;
}

const upcomingFilterNames: OptionNames<UpcomingFilter> = {
  filter: true,
  allNamespaces: true,
  excludeHeld: true,
  pageSize: true,
};

/** NewJob is one job of createMany. */
export interface NewJob {
  /** id is generated if it is not set. */
  id?: string;
  job: JobInput;
  requestId?: string;
}

/** CreateResult is the result for one new job. */
export type CreateResult = { job: Job; error?: undefined } | { job?: undefined; error: FermataError };

const newJobNames: OptionNames<NewJob> = { id: true, job: true, requestId: true };

const previewNames = {
  schedule: true,
  job: true,
  count: true,
  after: true,
  retryPolicy: true,
  backoffPolicy: true,
} as const;

// Limits of one BatchCreateJobs call.
const maxBatchJobs = 1000;
const maxBatchBytes = 8 << 20;

const firstPollInterval = 50;
const maxPollInterval = 2000;
const pollTimeout = 10_000;

/** Jobs creates jobs, changes them, and shows their state. Jobs are named by id, or by their full name. */
export class Jobs {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  /** create registers a job. Without an id the cluster generates one. Creating the same job twice succeeds; if another
   * job has the id, the error is ALREADY_EXISTS. */
  create(id: string | undefined, job: JobInput, options: RequestOptions = {}): Promise<Job> {
    const requestId = options.requestId ?? (id ? "" : newRequestId());
    const request = { parent: this.#calls.parent, jobId: id ?? "", job: toMessage(JobSchema, job), requestId };
    return this.#calls.call(options, (attempt) => this.#calls.jobs.createJob(request, attempt), requestNames);
  }

  /** createMany registers any number of jobs, in batches. Each has its own result. */
  async createMany(
    jobs: Iterable<NewJob>,
    options: CallOptions & { namesOnly?: boolean } = {},
  ): Promise<CreateResult[]> {
    const results: CreateResult[] = [];
    for (const requests of this.#batches(jobs)) {
      const request = { parent: this.#calls.parent, namesOnly: options.namesOnly ?? false, requests };
      const response = await this.#calls.call(
        options,
        (attempt) => this.#calls.jobs.batchCreateJobs(request, attempt),
        { namesOnly: true },
      );
      for (const r of response.results) {
        results.push(
          r.job && r.code === 0 ? { job: r.job } : { error: errorOfStatus(r.code, r.message, detailsOf(r)) },
        );
      }
    }
    return results;
  }

  *#batches(
    jobs: Iterable<NewJob>,
  ): Generator<MessageInitShape<typeof BatchCreateJobsRequestSchema>["requests"] & object> {
    let batch = [];
    let bytes = 0;
    for (const newJob of jobs) {
      requireKnownOptions("createMany", newJob, newJobNames);
      const { id, job, requestId } = newJob;
      const message = toMessage(JobSchema, job);
      const size = 512 + message.payload.length;
      if (batch.length === maxBatchJobs || (batch.length > 0 && bytes + size > maxBatchBytes)) {
        yield batch;
        batch = [];
        bytes = 0;
      }
      bytes += size;
      batch.push({ jobId: id ?? "", job: message, requestId: requestId ?? (id ? "" : newRequestId()) });
    }
    if (batch.length > 0) yield batch;
  }

  /** get returns a job. */
  get(id: string, options: CallOptions = {}): Promise<Job> {
    const name = this.#calls.jobName(id);
    return this.#calls.call(options, (attempt) => this.#calls.jobs.getJob({ name }, attempt));
  }

  /** list returns the selected jobs. It requests pages as they are needed. */
  async *list(filter: JobFilter = {}, options: CallOptions = {}): AsyncGenerator<Job, void, undefined> {
    requireKnownOptions("list", filter, jobFilterNames);
    const request = {
      parent: this.#calls.parentOf(filter.allNamespaces),
      queue: filter.queue,
      idPrefix: filter.idPrefix,
      labels: filter.labels,
      state: filter.state,
      minConsecutiveFailures: BigInt(filter.minFailures ?? 0),
      filter: filter.filter,
      orderBy: filter.orderBy,
      pageSize: filter.pageSize,
      recentRuns: filter.recentRuns,
    };
    yield* pages((pageToken) =>
      this.#calls.call(options, async (attempt) => {
        const page = await this.#calls.jobs.listJobs({ ...request, pageToken }, attempt);
        return { items: page.jobs, next: page.nextPageToken };
      }),
    );
  }

  /** update changes the fields that `changes` has, or those of `fields`: names in snake_case such as
   * "retry_policy.max_attempts", or "*" for all. With an etag, the call fails with ABORTED if the job was changed since
   * it was read. */
  update(
    id: string,
    changes: JobInput,
    options: RequestOptions & { fields?: string[]; etag?: string } = {},
  ): Promise<Job> {
    const paths =
      options.fields ??
      Object.entries(changes)
        .filter(([name, value]) => value !== undefined && !name.startsWith("$"))
        .map(([name]) => snakeCase(name));
    const job = toMessage(JobSchema, { ...changes, name: this.#calls.jobName(id), etag: options.etag ?? "" });
    const request = { job, updateMask: { paths }, requestId: options.requestId ?? newRequestId() };
    return this.#calls.call(
      options,
      (attempt) => this.#calls.jobs.updateJob(request, attempt),
      { ...requestNames, fields: true, etag: true },
    );
  }

  /** rename gives a job another id in its namespace. The job keeps its state, history, dead letters and revisions. Runs
   * that are live have to end before. */
  rename(id: string, newId: string, options: RequestOptions & { etag?: string } = {}): Promise<Job> {
    const requestId = options.requestId ?? newRequestId();
    const request = { name: this.#calls.jobName(id), newId, etag: options.etag ?? "", requestId };
    return this.#calls.call(
      options,
      (attempt) => this.#calls.jobs.renameJob(request, attempt),
      { ...requestNames, etag: true },
    );
  }

  /** delete deletes a job. A live run finishes. */
  async delete(id: string, options: CallOptions & { etag?: string; allowMissing?: boolean } = {}): Promise<void> {
    const request = { name: this.#calls.jobName(id), etag: options.etag ?? "" };
    // A retry finds no job if the first attempt succeeded and its response was lost.
    await this.#calls.call(
      options,
      (attempt, number) =>
        this.#calls.jobs.deleteJob({ ...request, allowMissing: options.allowMissing === true || number > 1 }, attempt),
      { etag: true, allowMissing: true },
    );
  }

  /** pause pauses a job until it is resumed. A live run continues. The note explains the pause to people. */
  pause(id: string, options: CallOptions & { note?: string } = {}): Promise<Job> {
    const request = { name: this.#calls.jobName(id), note: options.note ?? "" };
    return this.#calls.call(options, (attempt) => this.#calls.jobs.pauseJob(request, attempt), { note: true });
  }

  /** resume ends a pause. With catchUp, the misfire policy decides about scheduled times that passed meanwhile. */
  resume(id: string, options: CallOptions & { catchUp?: boolean } = {}): Promise<Job> {
    const request = { name: this.#calls.jobName(id), catchUp: options.catchUp ?? false };
    return this.#calls.call(options, (attempt) => this.#calls.jobs.resumeJob(request, attempt), { catchUp: true });
  }

  /** run requests a manual run, and returns it; with `wait` when it has ended. */
  async run(id: string, options: RunOptions = {}): Promise<Run> {
    if (options.payload !== undefined && options.backoff !== undefined) {
      throw new TypeError("a run with a payload of its own does not count for the backoff: leave one of them out");
    }
    const request = {
      name: this.#calls.jobName(id),
      requestId: options.requestId ?? newRequestId(),
      backoff: runBackoffs[options.backoff ?? "reset"],
      ignoreExclusions: options.ignoreExclusions ?? false,
    };
    const payload = options.payload === undefined ? undefined : toBytes("payload", options.payload);
    const run = await this.#calls.call(
      options,
      (attempt) => this.#requestRun(request, payload, attempt),
      runNames,
    );
    if (!run) throw new FermataError("INTERNAL", "the response has no run");
    if (options.wait === undefined || options.wait === false) return run;
    return this.waitRun(run.name, { signal: options.signal, timeout: options.wait === true ? Infinity : options.wait });
  }

  async #requestRun(
    request: { name: string; requestId: string; backoff: RunJobRequest_Backoff; ignoreExclusions: boolean },
    payload: Uint8Array<ArrayBuffer> | undefined,
    attempt: Attempt,
  ): Promise<Run | undefined> {
    if (payload === undefined) return (await this.#calls.jobs.runJob(request, attempt)).run;
    const { name, requestId, ignoreExclusions } = request;
    return this.#calls.jobs.runJobWithPayload({ name, requestId, ignoreExclusions, payload }, attempt);
  }

  /** waitRun waits until a run has ended, with all its attempts, and returns it. The timeout is DEADLINE_EXCEEDED. If
   * the job keeps no history, the error is NOT_FOUND after the end of the run. */
  async waitRun(
    run: string,
    options: { signal?: AbortSignal | undefined; timeout?: DurationInput } = {},
  ): Promise<Run> {
    requireKnownOptions("waitRun", options, { signal: true, timeout: true });
    const timeout = options.timeout ?? Infinity;
    const deadline = performance.now() + (timeout === Infinity ? Infinity : toMilliseconds(timeout));
    for (let wait = firstPollInterval; ; wait = Math.min(wait * 1.25, maxPollInterval)) {
      const found = await this.#pollRun(run, options.signal);
      if (found?.state === Run_State.FINISHED) return found;
      const left = deadline - performance.now();
      if (left <= 0) throw new FermataError("DEADLINE_EXCEEDED", `${run} has not ended in time`);
      await pause(Math.min(wait, left), options.signal);
    }
  }

  async #pollRun(name: string, signal?: AbortSignal): Promise<Run | undefined> {
    try {
      return await this.getRun(name, { signal, timeout: pollTimeout });
    } catch (error) {
      if (isFermataError(error, "UNAVAILABLE", "DEADLINE_EXCEEDED") && !signal?.aborted) return undefined;
      throw error;
    }
  }

  /** runs returns the current run of a job first, then finished ones, newest first, then dead letters. */
  async *runs(id: string, options: CallOptions = {}): AsyncGenerator<Run, void, undefined> {
    const parent = this.#calls.jobName(id);
    yield* pages((pageToken) =>
      this.#calls.call(options, async (attempt) => {
        const page = await this.#calls.jobs.listRuns({ parent, pageToken }, attempt);
        return { items: page.runs, next: page.nextPageToken };
      }),
    );
  }

  /** endedRuns returns runs of all jobs that ended without success, or with the given outcomes, the last one first. */
  async *endedRuns(
    filter: EndedRunsFilter = {},
    options: CallOptions = {},
  ): AsyncGenerator<Run, void, undefined> {
    requireKnownOptions("endedRuns", filter, endedRunsFilterNames);
    const request = {
      parent: `${this.#calls.parentOf(filter.allNamespaces)}/jobs/-`,
      queue: filter.queue,
      filter: filter.filter,
      outcomes: filter.outcomes,
      pageSize: filter.pageSize,
      startTime: filter.since && toTimestamp(filter.since),
      endTime: filter.until && toTimestamp(filter.until),
    };
    yield* pages((pageToken) =>
      this.#calls.call(options, async (attempt) => {
        const page = await this.#calls.jobs.listRuns({ ...request, pageToken }, attempt);
        return { items: page.runs, next: page.nextPageToken };
      }),
    );
  }

  /** getRun returns a run by its full name: that of Run.name. */
  getRun(name: string, options: CallOptions = {}): Promise<Run> {
    return this.#calls.call(options, (attempt) => this.#calls.jobs.getRun({ name }, attempt));
  }

  /** cancelRun cancels a run. A waiting run ends at once, a live one when its handler returns. */
  cancelRun(name: string, options: CallOptions = {}): Promise<Run> {
    return this.#calls.call(options, (attempt) => this.#calls.jobs.cancelRun({ name }, attempt));
  }

  /** explain returns why a job does not run now, and what it waits for. */
  explain(id: string, options: CallOptions = {}): Promise<ExplainJobResponse> {
    const name = this.#calls.jobName(id);
    return this.#calls.call(options, (attempt) => this.#calls.jobs.explainJob({ name }, attempt));
  }

  /** hint overrides when a job runs next, or how often it runs for a while. Without a hint the current one is removed.
   * */
  hint(id: string, hint?: Input<Hint>, options: CallOptions = {}): Promise<Job> {
    const request = { name: this.#calls.jobName(id), hint: hint && toMessage(HintSchema, hint) };
    return this.#calls.call(options, (attempt) => this.#calls.jobs.hintJob(request, attempt));
  }

  /** preview returns the next scheduled times of a schedule, or of a job, without storing anything. */
  preview(
    of: {
      schedule?: ScheduleInput;
      job?: string;
      count?: number;
      after?: TimeInput;
      retryPolicy?: Input<RetryPolicy>;
      backoffPolicy?: Input<BackoffPolicy>;
    },
    options: CallOptions = {},
  ): Promise<PreviewScheduleResponse> {
    requireKnownOptions("preview", of, previewNames);
    const request = {
      schedule: of.schedule && toMessage(ScheduleSchema, of.schedule),
      job: of.job && this.#calls.jobName(of.job),
      count: of.count,
      after: of.after && toTimestamp(of.after),
      retryPolicy: of.retryPolicy && toMessage(RetryPolicySchema, of.retryPolicy),
      backoffPolicy: of.backoffPolicy && toMessage(BackoffPolicySchema, of.backoffPolicy),
    };
    return this.#calls.call(options, (attempt) => this.#calls.jobs.previewSchedule(request, attempt));
  }

  /** upcoming returns the planned runs that are due next, in the order of their due times. */
  async *upcoming(
    filter: UpcomingFilter = {},
    options: CallOptions = {},
  ): AsyncGenerator<UpcomingRun, void, undefined> {
    requireKnownOptions("upcoming", filter, upcomingFilterNames);
    const request = {
      parent: this.#calls.parentOf(filter.allNamespaces),
      filter: filter.filter,
      excludeHeld: filter.excludeHeld,
      pageSize: filter.pageSize,
    };
    yield* pages((pageToken) =>
      this.#calls.call(options, async (attempt) => {
        const page = await this.#calls.jobs.listUpcomingJobs({ ...request, pageToken }, attempt);
        return { items: page.runs, next: page.nextPageToken };
      }),
    );
  }

  /** top returns the jobs that are latest, or that have failed longest, the worst first. */
  top(
    kind: "late" | "failing",
    options: CallOptions & { limit?: number; allNamespaces?: boolean } = {},
  ): Promise<TopJobsResponse> {
    const request = {
      parent: options.allNamespaces ? "" : this.#calls.parent,
      limit: options.limit,
      kind: kind === "late" ? TopJobsRequest_Kind.LATE : TopJobsRequest_Kind.FAILING,
    };
    return this.#calls.call(
      options,
      (attempt) => this.#calls.jobs.topJobs(request, attempt),
      { limit: true, allNamespaces: true },
    );
  }

  /** backfill runs the scheduled times of a past range, and returns the job with the id of the backfill. */
  async backfill(
    id: string,
    range: { from: TimeInput; to: TimeInput; parallel?: boolean },
    options: RequestOptions = {},
  ): Promise<{ id: string; job: Job }> {
    requireKnownOptions("backfill", range, { from: true, to: true, parallel: true });
    const requestId = options.requestId ?? newRequestId();
    const request = {
      name: this.#calls.jobName(id),
      requestId,
      startTime: toTimestamp(range.from),
      endTime: toTimestamp(range.to),
      overlapPolicy: range.parallel ? OverlapPolicy.ALLOW_ALL : OverlapPolicy.UNSPECIFIED,
    };
    return {
      id: requestId,
      job: await this.#calls.call(options, (attempt) => this.#calls.jobs.backfillJob(request, attempt), requestNames),
    };
  }

  /** cancelBackfill ends a backfill. Runs that have started continue. */
  cancelBackfill(id: string, backfillId: string, options: CallOptions = {}): Promise<Job> {
    const name = this.#calls.jobName(id);
    return this.#calls.call(options, async (attempt, number) => {
      try {
        return await this.#calls.jobs.cancelBackfill({ name, backfillId }, attempt);
      } catch (error) {
        // A retry finds no backfill if the first attempt succeeded and its response was lost.
        if (number > 1 && isFermataError(error, "NOT_FOUND")) return this.#calls.jobs.getJob({ name }, attempt);
        throw error;
      }
    });
  }

  /** deadLetters returns the runs that ended out of attempts, or were quarantined, and are kept. */
  async *deadLetters(
    filter: { queue?: string; idPrefix?: string; labels?: Record<string, string> } = {},
    options: CallOptions = {},
  ): AsyncGenerator<DeadLetter, void, undefined> {
    requireKnownOptions("deadLetters", filter, { queue: true, idPrefix: true, labels: true });
    const parent = this.#calls.parent;
    yield* pages((pageToken) =>
      this.#calls.call(options, async (attempt) => {
        const page = await this.#calls.jobs.listDeadLetters({ ...filter, parent, pageToken }, attempt);
        return { items: page.deadLetters, next: page.nextPageToken };
      }),
    );
  }

  /** redrive runs dead letters again, by name. */
  redrive(
    names: string[],
    options: CallOptions & { ignoreExclusions?: boolean } = {},
  ): Promise<RedriveDeadLettersResponse> {
    const request = { parent: this.#calls.parent, names, ignoreExclusions: options.ignoreExclusions };
    return this.#calls.call(
      options,
      (attempt) => this.#calls.jobs.redriveDeadLetters(request, attempt),
      { ignoreExclusions: true },
    );
  }

  /** discard deletes a dead letter with its run, for good. */
  async discard(deadLetter: DeadLetter, options: CallOptions = {}): Promise<void> {
    const request = { name: deadLetter.name, runId: lastNamePart(deadLetter.run?.name ?? "") };
    await this.#calls.call(options, async (attempt, number) => {
      try {
        await this.#calls.jobs.discardDeadLetter(request, attempt);
      } catch (error) {
        // A retry finds none if the first attempt succeeded and its response was lost.
        if (!(number > 1 && isFermataError(error, "NOT_FOUND"))) throw error;
      }
    });
  }
}

/** pages returns the items of all pages of a list. */
async function* pages<T>(
  page: (token: string) => Promise<{ items: T[]; next: string }>,
): AsyncGenerator<T, void, undefined> {
  for (let token = ""; ;) {
    const { items, next } = await page(token);
    yield* items;
    if (next === "") return;
    token = next;
  }
}

function detailsOf(result: { details: { typeUrl: string; value: Uint8Array }[] }) {
  return result.details.map((d) => ({ type: d.typeUrl.slice(d.typeUrl.lastIndexOf("/") + 1), value: d.value }));
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** lastNamePart returns the id at the end of a full name. */
export function lastNamePart(name: string): string {
  return name.slice(name.lastIndexOf("/") + 1);
}
