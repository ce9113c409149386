// Package conn connects to Redis: it reads URLs, makes clients for one server, Sentinel or a cluster,
// and checks that the servers are safe to use.
//
// # Model
//
// [NewClient] makes a go-redis client. Dialling includes TLS and the handshake (HELLO, AUTH, SELECT),
// so that a call on a new connection needs no round trip before its own. A connection that was lost
// to a timeout is replaced in the background.
//
// [Preflight] reads INFO of each primary, and asks by ACL DRYRUN whether the server can load its
// append-only file. Its [Report] has the durability that the servers can give, and findings: what is
// wrong, and what to do about it.
//
// # Invariants
//
//  1. The client never retries: a retried command must be recognised as one by its sender.
//  2. A call ends by its deadline, even if a server is stalled. A stalled server does not leave the
//     pool empty: new connections are dialled beside the calls.
//  3. No error shows a password. A URL without TLS together with TLS options is an error.
//  4. Preflight changes nothing on a server.
package conn
