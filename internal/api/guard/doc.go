// Package guard authenticates the callers of gRPC methods, authorizes their calls and limits what they use.
//
// A [Gate] belongs to one server. Its interceptors find the caller of each call through an [Authority], by
// bearer token or verified client certificate, and compare the permission that the method requires with the
// caller's roles (permissions.go). The identity is cached on the connection for a minute. A role may be
// limited to some queues: the table of permissions states for each method whether such a role may call it, and
// handlers that filter by queue use [scope].
//
// gRPC reads a whole request before an interceptor runs. The gate therefore also wraps the transport
// credentials and the tap handle of the server: they count the connections, streams and bytes of callers that
// are not authenticated yet, and close those that exceed a limit (unauthenticated.go).
//
// Invariants:
//
//  1. A server refuses to start if one of its methods has no permission (permissions.go) or no bound of work
//     (work_bounds.go).
//  2. With an Authority no handler sees a request before its caller is authenticated and authorized. A
//     refusal names the missing permission, and neither who has it nor whether the requested object exists.
//  3. Without an Authority every caller may call every method, within the limits of its host.
//  4. Connections, streams and bytes of unauthenticated callers are bounded, per connection and in total. A
//     new address always gets a connection, however many another address holds.
//  5. A panic ends the call in which it occurs and no other (report.go).
//  6. A stream that outlives its credential or the role of its caller ends within [RecheckInterval] if its
//     handler calls Caller.Reauthenticate.
package guard
