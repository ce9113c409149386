// Durations as people read them.

/** parseDuration is a duration of the API, such as "90s" or "0.003s", in milliseconds; 0 if it is unset. */
export function parseDuration(text: string | undefined): number {
  return text ? parseFloat(text) * 1000 : 0;
}

const units: Array<[number, string]> = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]];

/** formatDuration is a duration with its two largest units: 3 min 12 s, 1.1 s, 4 ms. */
export function formatDuration(ms: number): string {
  const n = Math.abs(ms);
  if (n < 1000) return `${Math.round(n)} ms`;
  if (n < 10_000 && n % 1000 !== 0) return `${(Math.floor(n / 100) / 10).toFixed(1)} s`;
  const i = units.findIndex(([size]) => n >= size);
  const [size, name] = units[i]!;
  const text = `${Math.floor(n / size)} ${name}`;
  const next = units[i + 1];
  const rest = next ? Math.floor((n % size) / next[0]) : 0;
  return next && rest > 0 ? `${text} ${rest} ${next[1]}` : text;
}

/** formatSpan is a duration of the API. */
export const formatSpan = (text: string | undefined): string => formatDuration(parseDuration(text));

/** formatDistance is how far a time is from now: in 3 min 12 s, 40 s ago. */
export function formatDistance(time: number, now: number): string {
  const ms = time - now;
  if (Math.abs(ms) < 1000) return "now";
  const whole = formatDuration(Math.floor(Math.abs(ms) / 1000) * 1000);
  return ms > 0 ? `in ${whole}` : `${whole} ago`;
}

const inputUnits: Record<string, number> = { ms: 1, s: 1000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/** parseInput reads a duration as people type it, such as 90s, 5m or 1h30m, in milliseconds; undefined: it is none. */
export function parseInput(text: string): number | undefined {
  const compact = text.replaceAll(" ", "");
  const parts = [...compact.matchAll(/(\d+(?:\.\d+)?)(ms|min|s|m|h|d|w)/g)];
  if (compact === "" || parts.map((p) => p[0]).join("") !== compact) return undefined;
  return parts.reduce((sum, p) => sum + Number(p[1]) * inputUnits[p[2]!]!, 0);
}

/** apiDuration is a duration for the API: "90s". */
export const apiDuration = (ms: number): string => `${ms / 1000}s`;
