/** Client of Fermata, the distributed job scheduler. Workers: "@fermata-io/fermata/worker". */
export { Fermata, type FermataOptions } from "./client/fermata.js";
export {
  Jobs,
  type CreateResult,
  type JobFilter,
  type JobInput,
  type NewJob,
  type RunBackoff,
  type RunOptions,
} from "./client/jobs.js";
export { Queues } from "./client/queues.js";
export type { CallOptions, RequestOptions } from "./client/calls.js";
export { type EventBatch, type EventFilter, fileToken, type ResumeStore } from "./client/events.js";
export { type ErrorCode, FermataError, isFermataError, type Violation } from "./client/errors.js";
export {
  cron,
  every,
  everyDays,
  everyMonths,
  everyWeeks,
  fixedDelay,
  json,
  once,
  type ScheduleInput,
  text,
} from "./client/schedules.js";
export {
  type DurationInput,
  type Input,
  type TimeInput,
  toDate,
  toMessage,
  toMilliseconds,
} from "./client/messages.js";
export { type TlsFiles, tlsFiles, type TlsOptions, type TlsSettings } from "./net/connection.js";
export { tokenFile, type TokenSource } from "./net/token.js";

export * from "./gen/fermata/v1/job_pb.js";
export * from "./gen/fermata/v1/job_service_pb.js";
export * from "./gen/fermata/v1/job_revision_pb.js";
export * from "./gen/fermata/v1/bulk_pb.js";
export * from "./gen/fermata/v1/event_service_pb.js";
export * from "./gen/fermata/v1/cluster_service_pb.js";
export * from "./gen/fermata/v1/access_service_pb.js";
export * from "./gen/fermata/v1/limits_pb.js";
export * from "./gen/fermata/v1/forecast_pb.js";
