// The frame around each screen: navigation, namespace, zone, theme, caller.
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../api/client";
import { lastPart } from "../api/names";
import { Dialog } from "../components/dialog";
import { Failed } from "../components/messages";
import { localZone } from "../format/time";
import { useQuery } from "../live/query";
import { screens } from "../screens";
import { NotFound } from "../screens/not_found";
import { caller, isSignedOut, roleOf, serverConfig } from "./access";
import { bindKey, boundKeys } from "./keyboard";
import { Notices } from "./notices";
import { anyNamespace, chooseNamespace, goTo, listLink, namespace, place } from "./routes";
import { matchScreen, type Screen } from "./screen";
import { settings, type Theme, type TimeStyle, type Zone } from "./settings";
import { SignIn, signOut } from "./sign_in";

/** Shell is the whole page. */
export function Shell() {
  const [showsKeys, setShowsKeys] = useState(false);
  useEffect(() => bindShellKeys(() => setShowsKeys(true)), []);
  const found = findScreen(place.value.path);
  const isUnknown = isSignedOut.value && !caller.value;
  return (
    <>
      <a class="skip" href="#main" onClick={focusMain}>Skip to the content</a>
      <Header current={found?.screen} isUnknown={isUnknown} />
      <Main found={found} />
      <Notices />
      <Dialog open={isSignedOut.value && !!caller.value} title="The session has ended" onClose={() => { isSignedOut.value = false; }}>
        <SignIn keepsPage />
      </Dialog>
      <Dialog open={showsKeys} title="Keys" onClose={() => setShowsKeys(false)}>
        <table class="keys">
          <tbody>
            {boundKeys().map((k) => <tr key={k.keys}><th scope="row"><kbd>{k.keys}</kbd></th><td>{k.text}</td></tr>)}
            <tr><th scope="row"><kbd>↑ ↓</kbd></th><td>Move between the rows of a table; Enter opens one</td></tr>
            <tr><th scope="row"><kbd>Esc</kbd></th><td>Close a dialog without an effect</td></tr>
          </tbody>
        </table>
      </Dialog>
    </>
  );
}

interface Found {
  screen: Screen;
  params: Record<string, string>;
}

function findScreen(path: string[]): Found | undefined {
  for (const screen of screens) {
    const params = matchScreen(screen, path);
    if (params) return { screen, params };
  }
  return undefined;
}

function Main({ found }: { found: Found | undefined }) {
  const main = useRef<HTMLElement>(null);
  const key = place.value.path.join("/");
  const shown = useRef(key);
  useEffect(() => {
    document.title = `${found ? found.screen.title(found.params) : "Not found"} · Fermata`;
    if (shown.current !== key) {
      shown.current = key;
      main.current?.focus(); // where the new screen begins, for keyboards and screen readers
      scrollTo(0, 0);
    }
  }, [key]);
  const View = found?.screen.view;
  return (
    <main id="main" ref={main} tabIndex={-1}>
      {isSignedOut.value && !caller.value ? <section class="card narrow"><h1>Sign in</h1><SignIn /></section> : View ? <View key={key} params={found!.params} /> : <NotFound />}
    </main>
  );
}

function focusMain(e: Event): void {
  e.preventDefault();
  document.getElementById("main")?.focus();
}

function bindShellKeys(showKeys: () => void): () => void {
  const undo = [
    bindKey("?", "Show the keys", showKeys),
    bindKey("/", "Find a job", () => document.querySelector<HTMLInputElement>("[data-find]")?.focus()),
    ...screens.filter((s) => s.key).map((s) =>
      bindKey(`g ${s.key}`, `Go to ${s.nav}`, () => goTo(listLink(s.path, {})))),
  ];
  return () => undo.forEach((u) => u());
}

function Header({ current, isUnknown }: { current: Screen | undefined; isUnknown: boolean }) {
  return (
    <header class="top">
      <a class="brand" href={listLink("", {})} aria-label="Fermata, overview">
        <svg viewBox="0 0 52 40" aria-hidden="true">
          <path d="M4 34C4 16 14 6 26 6s22 10 22 28h-5C43 20 36 13 26 13S9 20 9 34z" fill="currentColor" />
          <circle cx="26" cy="29" r="5" class="dot" />
        </svg>
        <span>Fermata</span>
      </a>
      <nav aria-label="Screens">
        {screens.filter((s) => s.nav).map((s) => (
          <a key={s.path} href={listLink(s.path, {})} aria-current={isUnder(current, s) ? "page" : undefined}>{s.nav}</a>
        ))}
      </nav>
      {serverConfig.value.readOnly && <span class="banner">Read-only</span>}
      <div class="controls">
        <Find />
        {!isUnknown && <NamespaceChoice />}
        <Preferences />
      </div>
    </header>
  );
}

const isUnder = (current: Screen | undefined, s: Screen) => current === s || current?.under === s.path;

function Find() {
  const find = (e: Event) => {
    e.preventDefault();
    const input = (e.currentTarget as HTMLFormElement).elements.namedItem("find") as HTMLInputElement;
    goTo(listLink("jobs", { filter: input.value.trim() || undefined }));
    input.value = "";
  };
  return (
    <form role="search" onSubmit={find} class="find">
      <input name="find" data-find type="search" placeholder="Find a job  /" aria-label="Find a job by id, handler or filter"
        autocomplete="off" spellcheck={false} />
    </form>
  );
}

function NamespaceChoice() {
  const list = useQuery("namespaces", (signal) => call("ListNamespaces", {}, undefined, { signal }), 30_000);
  const names = (list.data.value?.namespaces ?? []).map((n) => lastPart(n.name));
  const chosen = namespace.value;
  if (chosen !== anyNamespace && !names.includes(chosen)) names.unshift(chosen);
  return (
    <label class="choice">
      <span class="hidden">Namespace</span>
      <select value={chosen} onChange={(e) => chooseNamespace(e.currentTarget.value)}>
        <option value={anyNamespace}>All namespaces</option>
        {names.map((n) => <option key={n} value={n}>{n}</option>)}
      </select>
    </label>
  );
}

function Preferences() {
  const who = caller.value;
  return (
    <details class="menu" onKeyDown={closeOnEscape} onFocusOut={closeOutside}>
      <summary>{who ? <><span class="who">{who.identity}</span></> : "Settings"}</summary>
      <div class="panel">
        {who && <p class="soft">{who.identity}: {roleOf(who)}, by node {who.node}</p>}
        <label>Time zone
          <select value={settings.zone.value} onChange={(e) => { settings.zone.value = e.currentTarget.value as Zone; }}>
            <option value="local">Local: {localZone}</option>
            <option value="utc">UTC</option>
            <option value="job">That of each job</option>
          </select>
        </label>
        <label>Times
          <select value={settings.times.value} onChange={(e) => { settings.times.value = e.currentTarget.value as TimeStyle; }}>
            <option value="absolute">As times</option>
            <option value="relative">As distances from now</option>
          </select>
        </label>
        <label>Theme
          <select value={settings.theme.value} onChange={(e) => { settings.theme.value = e.currentTarget.value as Theme; }}>
            <option value="auto">As the system</option>
            <option value="light">Light</option>
            <option value="dark">Dark</option>
          </select>
        </label>
        {serverConfig.value.signIn && who && who.authentication !== "AUTHENTICATION_NONE"
          && <button type="button" onClick={() => void signOut()}>Sign out</button>}
        <p class="soft"><a href="licenses.txt">Licences</a> · {serverConfig.value.version ?? ""}</p>
      </div>
    </details>
  );
}

function closeOnEscape(e: KeyboardEvent): void {
  const menu = e.currentTarget as HTMLDetailsElement;
  if (e.key !== "Escape" || !menu.open) return;
  menu.open = false;
  menu.querySelector("summary")?.focus();
}

function closeOutside(e: FocusEvent): void {
  const menu = e.currentTarget as HTMLDetailsElement;
  if (e.relatedTarget && !menu.contains(e.relatedTarget as Node)) menu.open = false;
}

/** StartFailed is shown if the console cannot start. */
export const StartFailed = ({ error }: { error: Parameters<typeof Failed>[0]["failure"] }) => (
  <main id="main"><Failed failure={error} what="The console cannot start" /></main>
);
