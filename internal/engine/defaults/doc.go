// Package defaults loads the retry and backoff settings that an operator sets for jobs without
// their own: the flags of a node, and the file of --defaults-file.
//
// The file is a mapping of
//
//	cluster     policies of all jobs
//	namespaces  namespace → policies of its jobs
//	queues      namespace/queue → policies of its jobs
//	presets     name → description and policies, for jobs that name the preset
//
// Policies are retry_policy and backoff_policy, with the field names and formats of job
// files. Each may name a preset and override fields of it.
//
// Invariants:
//
//  1. Nothing is ignored: an unknown key, a duplicate and a value of the wrong type are errors
//     with their line, and all errors are reported at once.
//  2. The result passes [backoff.Defaults.Validate]: each scope has policies that a job may have.
//  3. A flag overrides the file's cluster.
package defaults
