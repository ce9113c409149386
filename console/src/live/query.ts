// Live data: a query loads again while its screen is shown, keeps the last data when a load fails, and rests while the
// page is hidden.
import { signal, type Signal } from "@preact/signals";
import { useLayoutEffect, useMemo } from "preact/hooks";
import { toFailure, type Failure } from "../api/errors";
import { serverNow } from "./clock";

/** Query is data that stays current. */
export interface Query<T> {
  /** data is what the last successful load returned. */
  data: Signal<T | undefined>;
  /** error is that of the last load; undefined after a successful one. */
  error: Signal<Failure | undefined>;
  /** loadedAt is the time of the server at the last successful load. */
  loadedAt: Signal<number>;
  /** refresh loads now. */
  refresh: () => Promise<void>;
}

/** Load fetches the data of a query. */
export type Load<T> = (signal: AbortSignal) => Promise<T>;

const defaultInterval = 3000;
const maxInterval = 30_000;
const maxCached = 24;

/** cache has the last data of queries, by key, so that a screen that was shown before appears at once. */
const cache = new Map<string, { data: unknown; at: number }>();

/** active are the queries of the screen. */
const active = new Set<LiveQuery<unknown>>();

/** refreshAll loads all queries of the screen, after an action for instance. */
export const refreshAll = (): Promise<unknown> => Promise.all([...active].map((q) => q.refresh()));

/** dropCache forgets all data, of another caller for instance. */
export function dropCache(): void {
  cache.clear();
}

class LiveQuery<T> implements Query<T> {
  data: Signal<T | undefined>;
  error = signal<Failure | undefined>(undefined);
  loadedAt = signal(0);
  load: Load<T>;
  private timer = 0;
  private failures = 0;
  private running: AbortController | undefined;
  private isActive = false;

  constructor(private key: string, load: Load<T>, private interval: number) {
    const cached = cache.get(key);
    this.data = signal(cached?.data as T | undefined);
    this.loadedAt.value = cached?.at ?? 0;
    this.load = load;
  }

  start(): void {
    this.isActive = true;
    active.add(this as LiveQuery<unknown>);
    document.addEventListener("visibilitychange", this.wake);
    window.addEventListener("online", this.wake);
    void this.refresh();
  }

  stop(): void {
    this.isActive = false;
    active.delete(this as LiveQuery<unknown>);
    document.removeEventListener("visibilitychange", this.wake);
    window.removeEventListener("online", this.wake);
    clearTimeout(this.timer);
    this.running?.abort();
  }

  private wake = () => {
    if (!document.hidden) void this.refresh();
  };

  refresh = async (): Promise<void> => {
    clearTimeout(this.timer);
    this.running?.abort();
    const running = new AbortController();
    this.running = running;
    try {
      const data = await this.load(running.signal);
      if (running.signal.aborted) return;
      this.failures = 0;
      this.data.value = data;
      this.error.value = undefined;
      this.loadedAt.value = serverNow();
      remember(this.key, data, this.loadedAt.value);
    } catch (e) {
      if (running.signal.aborted) return;
      this.failures++;
      this.error.value = toFailure(e);
    }
    this.schedule();
  };

  private schedule(): void {
    if (!this.isActive || document.hidden || this.interval === 0) return;
    const f = this.error.value;
    if (f && !f.isTransient && f.status !== 500) return; // it stays until something changes: no load can help
    const wait = f ? Math.min(maxInterval, this.interval * 2 ** Math.min(this.failures, 5)) : this.interval;
    this.timer = setTimeout(this.refresh, Math.max(wait, (f?.retryAfter ?? 0) * 1000));
  }
}

function remember(key: string, data: unknown, at: number): void {
  cache.delete(key);
  cache.set(key, { data, at });
  for (const oldest of cache.keys()) {
    if (cache.size <= maxCached) break;
    cache.delete(oldest);
  }
}

/**
 * useQuery is live data of a component. The key names it: with another key the query starts anew. An interval of 0
 * loads once.
 */
export function useQuery<T>(key: string, load: Load<T>, interval = defaultInterval): Query<T> {
  const query = useMemo(() => new LiveQuery(key, load, interval), [key]);
  query.load = load;
  useLayoutEffect(() => { // the call is on its way before the browser draws what it shows meanwhile
    query.start();
    return () => query.stop();
  }, [query]);
  return query;
}
