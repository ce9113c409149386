// What a person chose: kept in this browser, shared by its tabs.
import { effect, signal, type Signal } from "@preact/signals";

/** Zone is the zone in which times are shown: of this machine, UTC, or of each job's schedule. */
export type Zone = "local" | "utc" | "job";

/** Theme of the page; "auto" is that of the system. */
export type Theme = "auto" | "light" | "dark";

/** TimeStyle: times as distances from now, or as times of the day. */
export type TimeStyle = "absolute" | "relative";

const prefix = "fermata.";

function stored<T extends string>(name: string, initial: T, allowed?: readonly T[]): Signal<T> {
  let first = initial;
  try {
    const found = localStorage.getItem(prefix + name) as T | null;
    if (found !== null && (!allowed || allowed.includes(found))) first = found;
  } catch { /* storage is forbidden: settings last as long as the page */ }
  const s = signal<T>(first);
  effect(() => {
    try {
      localStorage.setItem(prefix + name, s.value);
    } catch { /* as above */ }
  });
  addEventListener("storage", (e) => {
    const value = e.newValue as T | null;
    if (e.key === prefix + name && value !== null && (!allowed || allowed.includes(value))) s.value = value;
  });
  return s;
}

/** settings are all of them. */
export const settings = {
  zone: stored<Zone>("zone", "local", ["local", "utc", "job"]),
  theme: stored<Theme>("theme", "auto", ["auto", "light", "dark"]),
  times: stored<TimeStyle>("times", "absolute", ["absolute", "relative"]),
  /** namespace is the last one that was chosen; "-" are all. */
  namespace: stored<string>("namespace", "-"),
};

effect(() => {
  document.documentElement.dataset.theme = settings.theme.value;
});
