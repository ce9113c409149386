// Package manifest parses files with jobs and queue limits: YAML or JSON documents, or the JSON lines
// of fermata export.
//
// A document is a job, a list of jobs, or a mapping of "jobs" (a list, or id → job)
// and "queues" (name → limits). A job has the field names of the API, and besides
//
//	id            the job's id, if "name" is not set
//	http, exec    payload of the built-in handler of that name
//	payload_text  payload as text
//	paused        whether the job is to be paused
//
// Durations may be written as 90s or 1h30m, enum values in lower case without their
// prefix.
//
// Invariants:
//
//  1. All faults of a file are reported together, up to [MaxErrors], each with the line of its
//     field. Nothing is returned of a job with a field that was not understood.
//  2. The faults that a node reports for fields of the API are located in the file
//     ([Job.Locate]).
//  3. Any bytes are parsed or rejected, in time and memory bounded by the file's size. The
//     content of an alias counts each time, in a document and in all files together.
package manifest
