// Package importer makes files for fermata apply of what other schedulers are
// configured by: crontabs, and CronJobs of Kubernetes.
//
// Each entry becomes a job that does what the entry did as nearly as Fermata can; what
// it cannot do is a [Note] with the line that it is about, and a comment above the job.
// An entry of which no job can be made is a comment only.
//
// Invariants:
//
//  1. Nothing is left out in silence: what a field of an entry asks for is in the job,
//     in a note, or makes no difference.
//  2. What is written is read by package manifest without a fault, whatever was read.
//  3. The id of a job depends on its own entry only, so that importing again after an
//     edit elsewhere changes nothing.
//  4. No clock, chance, network or file system: the same text gives the same jobs.
package importer
