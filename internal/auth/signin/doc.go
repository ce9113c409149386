// Package signin signs people in at an OpenID Connect issuer by the device flow of RFC 8628,
// keeps the session in a private file, and provides its token to calls. [CodeFlow] signs people in by their
// browser, which the issuer sends back to a server.
//
// Invariants:
//
//  1. A token is sent only to the addresses that its owner signed in for: a session names them,
//     and is found by them. Package bearer checks that they are reached by TLS or on loopback.
//  2. A file or a directory that others may read or write, or that another user owns, is not used.
//     A file is replaced as a whole.
//  3. A refresh token is used once: a process that refreshes holds the lock of the session, and
//     reads the file again under it. The new tokens are stored before the lock is released.
//  4. No error and no log line contains a secret.
package signin
