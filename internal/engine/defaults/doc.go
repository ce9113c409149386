// Package defaults reads what operators set for jobs that do not say themselves how long to wait
// after failures: the flags of a node, and the file of --defaults-file.
//
// The file is a mapping of
//
//	cluster     policies of all jobs
//	namespaces  namespace → policies of its jobs
//	queues      namespace/queue → policies of its jobs
//	presets     name → description and policies, for jobs that name the preset
//
// Policies are retry_policy and backoff_policy, with the names and the forms that files of jobs
// have. Each may name a preset, whose fields it sets as well.
//
// Invariants:
//
//  1. Nothing is ignored: what is unknown, occurs twice or is of the wrong kind is a fault with
//     its line, and all faults are reported at once.
//  2. What is read passes [backoff.Defaults.Validate]: each scope gives policies that a job may have.
//  3. A flag counts before the file's cluster.
package defaults
