// The place to which a sign-in at an issuer leads back. It is kept in this browser and is in no request: no link and no
// issuer decides it. A tab has its own; a sign-in that opens another tab hands the place over to that one.
import { loadDraft, saveDraft } from "./drafts";

/** returnHash is the place to which the gateway sends a browser that comes back from an issuer. */
const returnHash = "#/return";
const draftName = "return";
/** handedName is the place for another tab. Tabs share it: the first one that comes back without a place of its own. */
const handedName = "fermata.return";
/** handedTime is how long a sign-in may take, in milliseconds. */
const handedTime = 10 * 60_000;
/** maxLength is more than any link of the console has. */
const maxLength = 8000;

/** keepReturnPlace keeps the place that is shown. A later sign-in of the same tab replaces it. */
export function keepReturnPlace(): void {
  saveDraft(draftName, location.hash);
}

/** handReturnPlaceOver keeps the place that is shown for the tab that a sign-in opens. */
export function handReturnPlaceOver(): void {
  try {
    localStorage.setItem(handedName, JSON.stringify({ place: location.hash, at: Date.now() }));
  } catch { /* storage is forbidden or full: the other tab shows the overview */ }
}

/** dropHandedPlace forgets the place for another tab. */
export function dropHandedPlace(): void {
  try {
    localStorage.removeItem(handedName);
  } catch { /* storage is forbidden: there is none */ }
}

/** openReturnPlace replaces the place of the return by the one that was kept, once; without one, by the overview. */
export function openReturnPlace(): void {
  if (location.hash !== returnHash) return;
  const kept = loadDraft<unknown>(draftName) ?? takeHandedPlace();
  saveDraft(draftName, undefined);
  history.replaceState(null, "", isPlace(kept) ? kept : "#/");
}

/** takeHandedPlace returns the place that another tab has handed over, once. */
function takeHandedPlace(): unknown {
  try {
    const text = localStorage.getItem(handedName);
    localStorage.removeItem(handedName);
    const handed = JSON.parse(text ?? "null") as { place?: unknown; at?: unknown } | null;
    const age = Date.now() - Number(handed?.at);
    return age >= 0 && age < handedTime ? handed?.place : undefined;
  } catch {
    return undefined;
  }
}

/** isPlace: a part of the URL after #, which cannot lead to another page. */
const isPlace = (text: unknown): text is string =>
  typeof text === "string" && text.startsWith("#/") && text.length <= maxLength && text !== returnHash;
