// Package rpc implements the gRPC services of a node: jobs, backups, the cluster, events, access, and the
// interface that KEDA calls for autoscaling.
//
// A method reads its request with package convert, calls an engine through one of the interfaces in jobs.go
// and writes the answer. It returns errors of the core; the interceptors of package guard turn them into
// statuses. [NewServer] puts the services behind the gate of package guard, the audit interceptor, and the check
// that the keyspace still exists.
//
// Invariants:
//
//  1. No type of the API goes further than internal/api, and no type of the core is sent.
//  2. A caller whose role is limited to some queues reaches only the jobs of those queues, through every method
//     (queue_scope.go). A job of another queue does not exist for that caller.
//  3. Every call that changes something is audited, unless it failed before it wrote anything (audit.go).
//  4. No call writes to a keyspace that is known to have been lost.
package rpc
