// Pause a queue until it is resumed, or until a time at which the nodes resume it.
import { Failure } from "../api/errors";
import { formatFull, localZone } from "../format/time";
import { serverNow } from "../live/clock";
import { defineAction, type Action, type ActionField, type Values } from "./action";
import { durationOf, instantOf } from "./inputs";
import { names, scope, switchTo, unchanged, type QueueSubject } from "./queues";

const fields: ActionField[] = [
  { name: "for", label: "For", kind: "duration", help: "The nodes resume the queue by themselves. Empty: until it is resumed, or until the time below." },
  { name: "until", label: "Or until (local time)", kind: "time" },
];

/** untilOf is the end of the pause; undefined: it has none. It throws a Failure. */
function untilOf(v: Values): string | undefined {
  if (v["for"] && v["until"]) throw new Failure("Set a duration or a time, not both", 400);
  if (v["for"]) return new Date(serverNow() + durationOf(v, "for", "For")).toISOString();
  return v["until"] ? instantOf(v, "until", "Until") : undefined;
}

/** untilForText is for texts, which must not fail while somebody types. */
function untilForText(v: Values): string | undefined {
  try {
    return untilOf(v);
  } catch {
    return undefined;
  }
}

function pauseEffect(v: Values): string {
  const until = untilForText(v);
  return `No run of the queue starts on any node, not even a manual one, until ${until ? formatFull(Date.parse(until), localZone) : "it is resumed"}. Live runs continue, and due runs wait in order.`;
}

const pauseWords = (q: QueueSubject, v: Values) => ["queues", "pause", q.queue, "--namespace", q.namespace,
  ...(v["for"] ? ["--for", v["for"]] : v["until"] ? ["--until", v["until"].replace("T", " ")] : [])];

/** setPauseEnd sets or removes the end of a pause; it pauses the queue if it is not paused. */
export const setPauseEnd: Action<QueueSubject> = defineAction({
  id: "set-pause-end", label: "Set end of pause…", method: "PauseQueue",
  title: (q) => `End of the pause of queue ${q.queue}`,
  effect: (_, v) => pauseEffect(v),
  fields: () => fields,
  scope, params: names,
  body: (_, v, requestId) => ({ untilTime: requestId ? untilOf(v) : untilForText(v) }),
  cli: pauseWords,
  done: (q, s) => (s.pauseUntilTime ? `Queue ${q.queue} is paused until ${formatFull(Date.parse(s.pauseUntilTime), localZone)}.` : `Queue ${q.queue} is paused until it is resumed.`),
});

const pauseWithoutEnd: Action<QueueSubject> = defineAction({
  id: "pause-queue", label: "Pause…", method: "UpdateQueueSettings",
  title: (q) => `Pause queue ${q.queue}`,
  effect: (_, v) => pauseEffect(v),
  fields: () => fields,
  scope, unavailable: (q) => (q.settings.paused ? "The queue is paused already." : ""),
  params: (q) => ({ ...names(q), ...unchanged(q) }),
  body: (q) => switchTo(q, true),
  cli: pauseWords,
  done: (q) => `Queue ${q.queue} is paused.`,
});

const hasEnd = (v: Values) => !!v["for"] || !!v["until"];

/** pauseQueue pauses without an end by the method that nodes of earlier versions have, too. */
export const pauseQueue: Action<QueueSubject> = {
  ...pauseWithoutEnd,
  run: (q, v, id) => (hasEnd(v) ? setPauseEnd : pauseWithoutEnd).run(q, v, id),
  curlText: (q, v) => (hasEnd(v) ? setPauseEnd : pauseWithoutEnd).curlText(q, v),
};
