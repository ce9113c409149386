// What was typed and is not saved, kept in this tab: over a reload, a lost connection and the end of a session. The place
// of a sign-in too.

const prefix = "fermata.draft/";

/** loadDraft returns what was kept under a name; undefined if there is nothing. */
export function loadDraft<T>(name: string): T | undefined {
  try {
    const text = sessionStorage.getItem(prefix + name);
    return text ? JSON.parse(text) as T : undefined;
  } catch {
    return undefined;
  }
}

/** saveDraft keeps a value under a name; undefined forgets it. */
export function saveDraft(name: string, value: unknown): void {
  try {
    if (value === undefined) sessionStorage.removeItem(prefix + name);
    else sessionStorage.setItem(prefix + name, JSON.stringify(value));
  } catch { /* storage is forbidden or full: it lasts as long as the page */ }
}

/** dropDrafts forgets all of them: nobody finds them after a sign-out. */
export function dropDrafts(): void {
  try {
    for (const key of Object.keys(sessionStorage)) if (key.startsWith(prefix)) sessionStorage.removeItem(key);
  } catch { /* as above */ }
}
