import { AsyncLocalStorage } from "node:async_hooks";
import type { Attempt } from "./attempt.js";
import type { Handler } from "./task.js";

// A handler may leave an error uncaught: a promise that nobody awaits is rejected, or a callback of a timer throws.
// Node.js would end the process, and with it the other handlers. Here the error fails the attempt whose handler began
// the work.

type FailAttempt = (attempt: Attempt, error: unknown) => void;

const running = new AsyncLocalStorage<{ attempt: Attempt; fail: FailAttempt }>();

let watchers = 0;

/** runWithin calls a handler so that what it leaves uncaught fails the attempt. */
export function runWithin(attempt: Attempt, fail: FailAttempt, handler: Handler): unknown {
  return running.run({ attempt, fail }, handler, attempt.task);
}

/** watchStrays begins to handle uncaught errors of handlers. The result ends that. */
export function watchStrays(): () => void {
  if (watchers++ === 0) process.on("uncaughtException", handleStray);
  let active = true;
  return () => {
    if (active && --watchers === 0) process.off("uncaughtException", handleStray);
    active = false;
  };
}

function handleStray(error: unknown): void {
  const owner = running.getStore();
  if (owner) {
    owner.fail(owner.attempt, error);
    return;
  }
  if (process.listenerCount("uncaughtException") > 1) return; // the program handles it
  process.stderr.write(`Uncaught ${error instanceof Error ? (error.stack ?? String(error)) : String(error)}\n`);
  process.exit(1);
}
