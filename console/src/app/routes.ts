// The place in the console: the part of the URL after #. All state that a link must carry is in it.
import { computed, signal } from "@preact/signals";
import { openReturnPlace } from "./return_place";
import { settings } from "./settings";

/** Place is a path and its query. */
export interface Place {
  path: string[];
  query: Record<string, string>;
}

function parsePlace(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return {
    path: path.split("/").filter(Boolean).map(decode),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function readPlace(): Place {
  openReturnPlace();
  return parsePlace(location.hash);
}

/** place is where the console is. */
export const place = signal<Place>(readPlace());
addEventListener("hashchange", () => {
  place.value = readPlace();
});

/** linkTo is the href of a place. Empty values of the query are left out. */
export function linkTo(path: string[], query: Record<string, string | undefined> = {}): string {
  const q = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value) q.set(key, value);
  const text = q.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** goTo opens a place. */
export function goTo(href: string): void {
  location.hash = href;
}

/** setQuery changes the query of the current place, without a new entry in the history of the browser. */
export function setQuery(changes: Record<string, string | undefined>): void {
  const href = linkTo(place.value.path, { ...place.value.query, ...changes });
  if (href === location.hash) return;
  history.replaceState(null, "", href);
  place.value = parsePlace(href);
}

/** anyNamespace stands for all namespaces of the caller. */
export const anyNamespace = "-";

/** namespace is the one that lists show: that of the URL, otherwise the last one that was chosen. */
export const namespace = computed(() => place.value.query["namespace"] ?? settings.namespace.value);

/** chooseNamespace shows another namespace. */
export function chooseNamespace(name: string): void {
  settings.namespace.value = name;
  const path = place.value.path;
  if (path[0] === "namespaces") goTo(listLink("jobs", {}));
  else setQuery({ namespace: name });
}

/** listLink is the href of a screen of the navigation, which keeps the namespace. */
export const listLink = (screen: string, query: Record<string, string | undefined>): string =>
  linkTo(screen ? [screen] : [], { namespace: namespace.value === anyNamespace ? undefined : namespace.value, ...query });

/** jobLink is the href of a job, by its resource name or that of a run. */
export function jobLink(name: string | undefined): string {
  const parts = (name ?? "").split("/");
  return linkTo(parts.slice(0, 4));
}

/** runLink is the href of a run, by its resource name. */
export const runLink = (name: string | undefined): string => linkTo((name ?? "").split("/"));
