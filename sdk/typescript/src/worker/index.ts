/** Worker of Fermata: runs the handlers of jobs. */
export { shutdownSignal, Worker } from "./worker.js";
export type { WorkerOptions } from "./options.js";
export { type Handler, type Middleware, Task } from "./task.js";
export type { Output } from "./output.js";
export { AttemptEnded, DrainTimeout, type EndCause, Permanent, RetryAfter } from "./errors.js";
export { type Logger, silentLogger, stderrLogger } from "./log.js";
export { tokenFile, type TokenSource } from "../net/token.js";
export { type TlsFiles, tlsFiles, type TlsOptions, type TlsSettings } from "../net/connection.js";
export type { DurationInput } from "../client/messages.js";
