// Short messages about what was done, read out by screen readers.
import { signal } from "@preact/signals";

interface Notice {
  id: number;
  text: string;
}

const notices = signal<Notice[]>([]);
let lastID = 0;

/** notify shows a message for eight seconds. */
export function notify(text: string): void {
  const id = ++lastID;
  notices.value = [...notices.value.slice(-3), { id, text }];
  setTimeout(() => {
    notices.value = notices.value.filter((n) => n.id !== id);
  }, 8000);
}

/** Notices is the place of the messages. */
export function Notices() {
  return (
    <div class="notices" role="status" aria-live="polite">
      {notices.value.map((n) => <p key={n.id} class="notice">{n.text}</p>)}
    </div>
  );
}
