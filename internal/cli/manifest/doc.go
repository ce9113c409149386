// Package manifest reads files of jobs: YAML or JSON documents, or the lines that
// fermata export writes.
//
// A document is a job, a list of jobs, or a mapping of "jobs" (a list, or id → job)
// and "queues" (name → limits). A job has the field names of the API, and besides
//
//	id            the job's id, if "name" does not say it
//	http, exec    payload of the ready-made handler of that name
//	payload_text  payload as text
//	paused        whether the job is to be paused
//
// Durations may be written as 90s or 1h30m, enum values in lower case without their
// prefix.
//
// Invariants:
//
//  1. Everything that is wrong with a file is told at once, up to [MaxFaults], each fault with the line of
//     the field that it is about. Nothing is returned as read of which anything was
//     not understood.
//  2. What a node says of a field of the API is found again in the file
//     ([Job.Locate]).
//  3. A file of any bytes is read or refused, in time and memory bounded by its size. What
//     aliases stand for counts each time, in a document and in all files together.
package manifest
