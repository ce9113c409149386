// Package tlsfiles makes TLS from certificates, keys and authorities in PEM files,
// which may be replaced while the process runs.
//
// # Model
//
// A [Source] stands for the files of one use: a listener, the links between nodes,
// connections to Redis. Every handshake asks it for what the files hold; it reads
// them again when its last look is more than a second ago, following links, so that
// both a rename and the swapped links of Kubernetes are noticed. Connections that
// are open stay as they are.
//
// # Invariants
//
//  1. Certificate, key and authority change together or not at all: as long as the
//     files do not fit each other or cannot be read, what was good last stays in
//     force. That is logged once for each change of the files.
//  2. Nobody is accepted by an authority that the files do not name any more: every
//     handshake verifies against what is in force then, and no session is resumed.
//  3. A handshake waits for at most its own look at the files, never for that of
//     another handshake.
//  4. Among peers the name of the host proves nothing: what counts is the authority
//     and a name in the certificate, in both directions.
//  5. No key material reaches a log, an error or a metric.
package tlsfiles
