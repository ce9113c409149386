/** Creates jobs with every kind of schedule, lists them, and changes one. */
import { cron, every, everyWeeks, Fermata, fixedDelay, json, once, RetryPolicy_Strategy, toDate } from "@fermata-io/fermata";

const fermata = await Fermata.connect({ addresses: process.env["FERMATA_ADDRESS"] ?? "127.0.0.1:7070" });

const common = { queue: "reports", handler: "report", labels: { example: "create-jobs" } };
await fermata.jobs.create("report-weekdays", { ...common, schedule: cron("0 7 * * MON-FRI", "Europe/Berlin") });
await fermata.jobs.create("report-often", { ...common, schedule: { ...every("5m"), jitter: "30s" }, maxLag: "10s" });
await fermata.jobs.create("report-after", { ...common, schedule: fixedDelay("1h") });
await fermata.jobs.create("report-biweekly", {
  ...common,
  schedule: everyWeeks(2, ["MON"], ["09:00"], "Europe/Berlin"),
});
await fermata.jobs.create("report-once", {
  ...common,
  payload: json({ tenant: 7 }),
  schedule: once(new Date(Date.now() + 3_600_000)),
  timeout: "90s",
  retryPolicy: { strategy: RetryPolicy_Strategy.EXPONENTIAL, baseDelay: "2s", maxAttempts: 5 },
});

await fermata.jobs.update("report-often", { schedule: every("10m"), timeout: "1m" });
for await (const job of fermata.jobs.list({ queue: "reports", orderBy: "id" })) {
  console.log(job.name.split("/").at(-1), "is due at", toDate(job.status?.nextDueTime)?.toISOString());
}
const preview = await fermata.jobs.preview({ job: "report-weekdays", count: 2 });
console.log("then", preview.times.map((t) => toDate(t.nominalTime)?.toISOString()).join(" and "));
await fermata.close();
