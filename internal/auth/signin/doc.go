// Package signin signs people in at an OpenID Connect issuer by the device flow of RFC 8628,
// keeps the session in a file of theirs, and gives its token to calls.
//
// Invariants:
//
//  1. A token goes only to the addresses that its owner signed in for: a session names them,
//     and is found by them. How they are reached, TLS or loopback, is checked by internal/auth/bearer.
//  2. Nothing is read from a file or a directory that others may read or write, or that another
//     user owns. A file is replaced as a whole.
//  3. A refresh token is used once: who refreshes holds the lock of the session, and reads the file
//     again under it. What the issuer answered is stored before the lock is released.
//  4. Secrets are in no error and in no log line.
package signin
