// What was typed, kept in this tab until it is saved: over a reload, a lost connection and a new sign-in.
import type { Job } from "../../api/generated";
import type { FormValues } from "./values";

/** Draft is an edit that is not saved. */
export interface Draft {
  /** id of a new job. */
  id: string;
  /** namespace of a new job. */
  namespace?: string;
  values: FormValues;
  /** base is the job as it was read when the edit began. */
  base: Job;
  /** requestId is that of the last attempt to save. */
  requestId: string;
  /** attempt is what the last attempt sent: with the same content it is repeated with the same id. */
  attempt: string;
  at: number;
}

const keyOf = (name: string) => `fermata.draft/${name}`;

/** loadDraft returns the draft of a job. */
export function loadDraft(name: string): Draft | undefined {
  try {
    const text = sessionStorage.getItem(keyOf(name));
    return text ? JSON.parse(text) as Draft : undefined;
  } catch {
    return undefined;
  }
}

/** saveDraft keeps the draft of a job. */
export function saveDraft(name: string, draft: Draft): void {
  try {
    sessionStorage.setItem(keyOf(name), JSON.stringify(draft));
  } catch { /* storage is forbidden or full: the draft lasts as long as the page */ }
}

/** dropDraft forgets the draft of a job. */
export function dropDraft(name: string): void {
  try {
    sessionStorage.removeItem(keyOf(name));
  } catch { /* as above */ }
}
