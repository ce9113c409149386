import { maxTimerMs } from "../client/messages.js";
import { AttemptEnded, type EndCause } from "./errors.js";

/** TaskContext decides when an attempt has to end. Many handlers never look, so the signal is made when one first does.
 * */
export class TaskContext {
  #deadline = Infinity;
  #ended: AttemptEnded | undefined;
  #isOver = false;
  #controller: AbortController | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** startTimeout starts the clock of the timeout; 0: none. */
  startTimeout(now: number, timeoutMs: number): void {
    if (timeoutMs > 0) this.#deadline = now + timeoutMs;
  }

  get signal(): AbortSignal {
    if (this.#controller) return this.#controller.signal;
    this.#controller = new AbortController();
    const ended = this.causeAt(performance.now());
    if (ended) this.#controller.abort(ended);
    else if (this.#deadline !== Infinity && !this.#isOver) this.#setTimer();
    return this.#controller.signal;
  }

  #setTimer(): void {
    this.#timer = setTimeout(
      () => {
        if (performance.now() >= this.#deadline) this.end("timeout");
        else this.#setTimer(); // timers may fire up to a millisecond early
      },
      Math.min(Math.ceil(this.#deadline - performance.now()), maxTimerMs),
    );
  }

  /** end makes the handler end. Only the first cause counts. */
  end(kind: EndCause): void {
    if (this.#isOver) return;
    if (!this.causeAt(performance.now())) this.#ended = new AttemptEnded(kind);
    clearTimeout(this.#timer);
    this.#controller?.abort(this.#ended);
  }

  /** causeAt returns why the attempt had to end by now; undefined: it had not. */
  causeAt(now: number): AttemptEnded | undefined {
    if (this.#ended === undefined && now >= this.#deadline) this.#ended = new AttemptEnded("timeout");
    return this.#ended;
  }

  /** finish frees the timer: the handler has ended. */
  finish(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }
}
