// The time of the server: countdowns must be right where the clock of this machine is not.
import { signal } from "@preact/signals";

let offset = 0;
let precision = Infinity;

/** noteServerTime learns the difference between the clocks from the header Date of a response. */
export function noteServerTime(date: string | null, sent: number, received: number): void {
  const server = date ? Date.parse(date) : NaN;
  // The header has whole seconds: the middle of that second is half a second off at most.
  const uncertain = (received - sent) / 2 + 500;
  if (Number.isNaN(server) || uncertain > precision * 1.5) return;
  precision = uncertain;
  const difference = server + 500 - (sent + received) / 2;
  // Differences that the precision explains are none: otherwise countdowns would jump.
  offset = Math.abs(difference) > 1500 ? difference : 0;
}

/** serverNow is the time of the server in milliseconds. */
export const serverNow = (): number => Date.now() + offset;

/** second changes each second while the page is visible. Read its value to render again. */
export const second = signal(serverNow());

setInterval(() => {
  if (!document.hidden) second.value = serverNow();
}, 1000);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) second.value = serverNow();
});
