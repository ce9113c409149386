// The files that are to be applied, kept in this tab over a reload and a new sign-in.

/** TextFile is a file by its name. */
export interface TextFile {
  name: string;
  text: string;
}

const key = "fermata.draft/apply";

/** loadFiles returns the files that were there before. */
export function loadFiles(): TextFile[] {
  try {
    return JSON.parse(sessionStorage.getItem(key) ?? "[]") as TextFile[];
  } catch {
    return [];
  }
}

/** saveFiles keeps the files. */
export function saveFiles(files: TextFile[]): void {
  try {
    if (files.length > 0) sessionStorage.setItem(key, JSON.stringify(files));
    else sessionStorage.removeItem(key);
  } catch { /* storage is forbidden or full: the files last as long as the page */ }
}
