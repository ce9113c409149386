// Keys that work everywhere. Each is listed by the dialog of "?".

/** Key is a key and what it does. */
export interface Key {
  keys: string;
  text: string;
}

const bindings = new Map<string, { key: Key; act: () => void }>();

/** bindKey sets what a key does, or what two keys in sequence do: "g j". It returns how to undo it. */
export function bindKey(keys: string, text: string, act: () => void): () => void {
  bindings.set(keys, { key: { keys, text }, act });
  return () => bindings.delete(keys);
}

/** boundKeys lists all keys. */
export const boundKeys = (): Key[] => [...bindings.values()].map((b) => b.key);

let pending = "";
let pendingSince = 0;

function isTyping(target: EventTarget | null): boolean {
  const e = target as HTMLElement | null;
  return !!e?.closest("input:not([type=checkbox]), textarea, select, [contenteditable], dialog");
}

addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || isTyping(e.target)) return;
  const isSequence = pending !== "" && e.timeStamp - pendingSince < 1500;
  const keys = isSequence ? `${pending} ${e.key}` : e.key;
  pending = "";
  const found = bindings.get(keys) ?? bindings.get(e.key);
  if (found) {
    e.preventDefault();
    found.act();
  } else if (e.key === "g") {
    pending = e.key;
    pendingSince = e.timeStamp;
  }
});
