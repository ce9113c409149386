/** Logger receives the log of a worker. `console` is one. */
export interface Logger {
  info(message: string, attributes: Record<string, unknown>): void;
  warn(message: string, attributes: Record<string, unknown>): void;
  error(message: string, attributes: Record<string, unknown>): void;
}

/** stderrLogger writes one line for each message: the time, the level, the text, and attributes as name=value. */
export const stderrLogger: Logger = {
  info: (message, attributes) => writeLine("INFO", message, attributes),
  warn: (message, attributes) => writeLine("WARN", message, attributes),
  error: (message, attributes) => writeLine("ERROR", message, attributes),
};

function writeLine(level: string, message: string, attributes: Record<string, unknown>): void {
  process.stderr.write(`${formatLine(level, message, attributes)}\n`);
}

/** formatLine returns the line of a message, which has no line breaks. */
export function formatLine(level: string, message: string, attributes: Record<string, unknown>): string {
  const pairs = Object.entries(attributes).map(([name, value]) => ` ${name}=${formatValue(value)}`);
  return `${new Date().toISOString()} ${level} ${message}${pairs.join("")}`;
}

function formatValue(value: unknown): string {
  const text = Array.isArray(value) ? value.join(",") : String(value);
  return /^[^\s"=\\\p{C}]+$/u.test(text) ? text : JSON.stringify(text);
}

/** silentLogger drops all messages. */
export const silentLogger: Logger = { info() {}, warn() {}, error() {} };

const firstReportPause = 5000;
const lastReportPause = 60_000;

/** FailurePacer decides when a failure in a row is logged: the first one, and then after pauses that double. */
export class FailurePacer {
  #next = -Infinity;
  #pause = 0;

  isDue(now: number): boolean {
    if (now < this.#next) return false;
    this.#pause = Math.min(Math.max(2 * this.#pause, firstReportPause), lastReportPause);
    this.#next = now + this.#pause;
    return true;
  }
}
