import { type QueueSettings, QueueSettingsSchema } from "../gen/fermata/v1/job_service_pb.js";
import type { CallOptions, Calls } from "./calls.js";
import { type Input, type TimeInput, toMessage, toTimestamp } from "./messages.js";

/** Queues pauses queues and sets their limits. */
export class Queues {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  /** get returns the limits of a queue, and whether it is paused. */
  get(queue: string, options: CallOptions = {}): Promise<QueueSettings> {
    const name = this.#calls.queueName(queue);
    return this.#calls.call(options, (attempt) => this.#calls.jobs.getQueueSettings({ name }, attempt));
  }

  /** set replaces the limits of a queue. Limits that are not set are removed. */
  set(queue: string, settings: Input<QueueSettings>, options: CallOptions = {}): Promise<QueueSettings> {
    const message = toMessage(QueueSettingsSchema, { ...settings, name: this.#calls.queueName(queue) });
    return this.#calls.call(options, (attempt) => this.#calls.jobs.updateQueueSettings({ settings: message }, attempt));
  }

  /** pause pauses a queue: until a time, or until it is resumed. */
  pause(queue: string, options: CallOptions & { until?: TimeInput } = {}): Promise<QueueSettings> {
    const request = { name: this.#calls.queueName(queue), untilTime: options.until && toTimestamp(options.until) };
    return this.#calls.call(options, (attempt) => this.#calls.jobs.pauseQueue(request, attempt), { until: true });
  }

  /** resume ends a pause. The limits stay as they are. */
  async resume(queue: string, options: CallOptions = {}): Promise<QueueSettings> {
    const settings = await this.get(queue, options);
    const request = { settings: { ...settings, paused: false, pauseUntilTime: undefined }, expected: settings };
    return this.#calls.call(options, (attempt) => this.#calls.jobs.updateQueueSettings(request, attempt));
  }
}
