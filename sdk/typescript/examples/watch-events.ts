/** Prints events from where the last process stopped: the file has the place. */
import { Fermata, fileToken, toDate } from "@fermata-io/fermata";
import { shutdownSignal } from "@fermata-io/fermata/worker";

const fermata = await Fermata.connect({ addresses: process.env["FERMATA_ADDRESS"] ?? "127.0.0.1:7070" });
const place = process.argv[2] ?? "events.place";
const signal = shutdownSignal();

try {
  // Delivery is at least once: the place is written when the loop asks for what follows a batch.
  for await (const event of fermata.events({ kinds: ["job.*", "run.*"], resume: fileToken(place), signal })) {
    console.log(toDate(event.time)?.toISOString(), event.kind, event.job, event.runId);
  }
} catch (error) {
  if (!signal.aborted) throw error;
}
await fermata.close();
