// Package importer converts crontabs and Kubernetes CronJobs to files for fermata apply.
//
// Each entry becomes a job that behaves like the entry as closely as Fermata can. Differences
// are reported as [Note] with the line of the entry, and as a comment above the job. An entry
// that cannot become a job becomes a comment.
//
// Invariants:
//
//  1. Nothing is left out silently: every field of an entry is in the job, in a note, or makes
//     no difference.
//  2. Package manifest reads every output without a fault, for any input.
//  3. The id of a job depends only on its own entry, so that importing again after an edit
//     elsewhere changes nothing.
//  4. No clock, random numbers, network or file system: the same text gives the same jobs.
//  5. A [Budget] bounds what jobs and notes hold, whatever their text expands to. A variable counts for each job that
//     has it.
package importer
