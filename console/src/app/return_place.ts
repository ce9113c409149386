// The place to which a sign-in at an issuer leads back. It is kept in this tab and is in no request: no link, no issuer
// and no other tab decides it.
import { loadDraft, saveDraft } from "./drafts";

/** returnHash is the place to which the gateway sends a browser that comes back from an issuer. */
const returnHash = "#/return";
const draftName = "return";
/** maxLength is more than any link of the console has. */
const maxLength = 8000;

/** keepReturnPlace keeps the place that is shown. A later sign-in of the same tab replaces it. */
export function keepReturnPlace(): void {
  saveDraft(draftName, location.hash);
}

/** openReturnPlace replaces the place of the return by the one that was kept, once; without one, by the overview. */
export function openReturnPlace(): void {
  if (location.hash !== returnHash) return;
  const kept = loadDraft<unknown>(draftName);
  saveDraft(draftName, undefined);
  history.replaceState(null, "", isPlace(kept) ? kept : "#/");
}

/** isPlace: a part of the URL after #, which cannot lead to another page. */
const isPlace = (text: unknown): text is string =>
  typeof text === "string" && text.startsWith("#/") && text.length <= maxLength && text !== returnHash;
