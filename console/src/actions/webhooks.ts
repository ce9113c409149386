// Actions on webhooks.
import type { Webhook } from "../api/generated";
import { plural } from "../format/text";
import { defineAction, type Action } from "./action";

export const redeliverEvents: Action<Webhook> = defineAction({
  id: "redeliver", label: "Redeliver…", method: "RedeliverEvents",
  title: (w) => `Redeliver to ${w.name}`,
  effect: (_, v) => "Up to 100 events are delivered again, the oldest first, until a temporary failure."
    + (v["dropRefused"] === "true" ? " Those that the endpoint refuses for good are deleted." : ""),
  fields: () => [{ name: "dropRefused", label: "Delete events that the endpoint refuses for good (400, 413, 415, 422)", kind: "check" }],
  scope: () => ({}),
  unavailable: (w) => (w.undelivered ? "" : "No event is undelivered."),
  params: (w) => ({ webhook: w.name ?? "" }),
  body: (_, v) => ({ dropRefused: v["dropRefused"] === "true" || undefined }),
  cli: (w, v) => ["webhooks", "redeliver", w.name ?? "", ...(v["dropRefused"] === "true" ? ["--drop-refused"] : [])],
  done: (_, r) => `${plural(r.delivered, "event")} delivered, ${plural(r.remaining, "event")} left${r.failure ? `: ${r.failure}` : ""}${r.refusal ? `; refused: ${r.refusal}` : ""}.`,
});
