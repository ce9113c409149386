// Package secrets gives handlers the secrets that payloads name.
//
// A payload never holds a secret, it holds a reference, ${secret:billing-token}.
// The worker that runs the attempt puts the secret in its place. So Redis, the API
// and the scheduler know the name only.
//
// Secrets are files of one directory, as Kubernetes mounts them. Each has a second
// file beside it which says where the secret may go:
//
//	billing-token         the secret; one line break at its end does not count
//	billing-token.allow   one destination a line; # begins a comment
//
// A destination is an origin, https://billing.example.com or
// http://10.0.0.7:8080, or the absolute path of a program. Without a file .allow
// a secret goes nowhere: who may write jobs decides about names, who runs the
// worker about destinations.
//
// Names are 1 to 63 of a-z, 0-9, ".", "_" and "-", beginning with a letter or a
// digit, and do not end in ".allow". Files are read each time they are used, so
// that a rotated secret counts from the next attempt on.
//
// Invariants:
//
//  1. A file is opened below the directory only: neither a name nor a symbolic link
//     leads out of it. What is not a regular file is not read.
//  2. A secret is given to a destination that its file .allow names, compared
//     exactly, and to no other.
//  3. Errors name a secret and never hold it.
//  4. [Use.Hide] masks the secrets that were given, and their usual encodings, which package
//     internal/lib/mask lists, also where an excerpt cuts one in two.
package secrets
