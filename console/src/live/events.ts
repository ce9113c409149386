// The stream of events: it resumes where it broke off, without a gap.
import { signal, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { apiBase, pathOf, type Params } from "../api/client";
import { Failure, failureOf, toFailure } from "../api/errors";
import type { Event, RpcStatus, WatchEventsResponse } from "../api/generated";
import { serverNow } from "./clock";

/** EventFilter selects events. */
export type EventFilter = Omit<Params<"WatchEvents">, "startTime" | "resumeToken" | "stopAtEnd">;

/** FeedState is what a feed does. */
export type FeedState = "connecting" | "live" | "interrupted" | "stopped";

/** EventFeed are the last events of a stream. */
export interface EventFeed {
  /** events, the newest first, at most as many as are kept. */
  events: Signal<Event[]>;
  /** total are all events since the feed began. */
  total: Signal<number>;
  state: Signal<FeedState>;
  /** error is why the stream is interrupted or has stopped. */
  error: Signal<Failure | undefined>;
}

const kept = 300;
/** flushInterval bounds how often the page renders, however many events there are. */
const flushInterval = 500;
/** history is how far back the list begins. */
const history = 15 * 60_000;
/** silence is after how long without a keep-alive, which comes each 15 seconds, the connection counts as broken. */
const silence = 45_000;
const maxDelay = 30_000;

class Feed implements EventFeed {
  events = signal<Event[]>([]);
  total = signal(0);
  state = signal<FeedState>("connecting");
  error = signal<Failure | undefined>(undefined);
  private token = "";
  private startTime = "";
  private pending: Event[] = [];
  private received = 0;
  private timer = 0;
  private connection: AbortController | undefined;

  constructor(private filter: EventFilter) {
    this.begin();
  }

  /** begin forgets what was read. */
  private begin(): void {
    this.token = "";
    this.startTime = new Date(serverNow() - history).toISOString();
    this.pending = [];
    this.events.value = [];
  }

  start(): void {
    if (this.connection) return;
    this.connection = new AbortController();
    void this.run(this.connection.signal);
  }

  stop(): void {
    this.connection?.abort();
    this.connection = undefined;
    this.flush();
  }

  private async run(stopped: AbortSignal): Promise<void> {
    for (let failures = 0; !stopped.aborted; failures++) {
      try {
        await this.read(stopped, () => { failures = 0; });
        this.state.value = "interrupted";
      } catch (e) {
        if (stopped.aborted) return;
        const failure = toFailure(e);
        this.error.value = failure;
        if (failure.reason === "EVENTS_GONE") this.begin();
        else if (!failure.isTransient) {
          this.state.value = "stopped";
          return;
        }
        this.state.value = "interrupted";
      }
      const wait = Math.min(maxDelay, 1000 * 2 ** Math.min(failures, 5));
      await new Promise((done) => setTimeout(done, wait));
    }
  }

  private async read(stopped: AbortSignal, onData: () => void): Promise<void> {
    const quiet = new AbortController();
    let watchdog = setTimeout(() => quiet.abort(), silence);
    try {
      const filter = { ...this.filter, ...(this.token ? { resumeToken: this.token } : { startTime: this.startTime }) };
      const response = await fetch(apiBase + pathOf("WatchEvents", filter), {
        headers: { Accept: "application/x-ndjson" }, credentials: "same-origin", signal: AbortSignal.any([stopped, quiet.signal]),
      });
      if (!response.ok) throw failureOf(response, await response.text());
      this.state.value = "live";
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(watchdog);
        watchdog = setTimeout(() => quiet.abort(), silence);
        onData();
        this.error.value = undefined;
        const lines = (rest + value).split("\n");
        rest = lines.pop()!;
        lines.filter(Boolean).forEach((line) => this.accept(line));
      }
    } catch (e) {
      if (quiet.signal.aborted) throw new Failure("The stream of events was silent.", 0);
      throw e;
    } finally {
      clearTimeout(watchdog);
    }
  }

  private accept(line: string): void {
    const batch = JSON.parse(line) as WatchEventsResponse & { error?: RpcStatus };
    if (batch.error) {
      const unavailable = batch.error.code === 14;
      throw new Failure(batch.error.message ?? "the stream has ended", unavailable ? 503 : 409);
    }
    if (batch.resumeToken) this.token = batch.resumeToken;
    if (!batch.events?.length) return;
    this.pending.push(...batch.events);
    this.received += batch.events.length;
    if (this.pending.length > kept) this.pending = this.pending.slice(-kept);
    if (this.timer === 0) this.timer = setTimeout(this.flush, flushInterval);
  }

  /** flush shows what was received since the last time. */
  private flush = () => {
    clearTimeout(this.timer);
    this.timer = 0;
    if (this.pending.length === 0) return;
    this.total.value = this.received;
    this.events.value = [...this.pending.reverse(), ...this.events.value].slice(0, kept);
    this.pending = [];
  };
}

/**
 * useEvents are the last 15 minutes of events, and those that follow, while a component is shown. With isPaused, and while
 * the page is hidden, nothing is read; it goes on where it stopped.
 */
export function useEvents(key: string, filter: EventFilter, isPaused: boolean): EventFeed {
  const feed = useMemo(() => new Feed(filter), [key]);
  useEffect(() => {
    if (isPaused) return undefined;
    const follow = () => (document.hidden ? feed.stop() : feed.start());
    follow();
    document.addEventListener("visibilitychange", follow);
    return () => {
      document.removeEventListener("visibilitychange", follow);
      feed.stop();
    };
  }, [feed, isPaused]);
  return feed;
}
