// The forecast of the server as one series of counts.
import type { ForecastLoadResponse } from "../api/generated";
import { parseDuration } from "../format/duration";

/** LoadSeries are due runs by bucket of time. */
export interface LoadSeries {
  start: number;
  /** step is the length of a bucket in milliseconds. */
  step: number;
  counts: number[];
  /** estimated are the parts of the counts whose times are estimated. */
  estimated: number[];
}

/** seriesOf adds the runs of all queues. */
export function seriesOf(forecast: ForecastLoadResponse): LoadSeries {
  const counts: number[] = [];
  const estimated: number[] = [];
  const add = (to: number[], from: string[] | undefined) => (from ?? []).forEach((n, i) => { to[i] = (to[i] ?? 0) + Number(n); });
  for (const q of forecast.queues ?? []) {
    add(counts, q.planned);
    add(counts, q.computed);
    add(counts, q.estimated);
    add(estimated, q.estimated);
  }
  return {
    start: Date.parse(forecast.startTime ?? "") || 0, step: parseDuration(forecast.resolution) || 60_000,
    counts: Array.from(counts, (n) => n ?? 0), estimated: Array.from(estimated, (n) => n ?? 0),
  };
}
