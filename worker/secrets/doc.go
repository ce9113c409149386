// Package secrets resolves references to secrets in payloads on the worker.
//
// A payload never contains a secret. It contains a reference, ${secret:billing-token}, which
// the worker that runs the attempt replaces by the secret. So Redis, the API and the scheduler
// know only the name.
//
// Secrets are files of one directory, as Kubernetes mounts them. Each has a second file with
// the destinations that may receive the secret:
//
//	billing-token         the secret; one line break at its end is removed
//	billing-token.allow   one destination per line; # begins a comment
//
// A destination is an origin, https://billing.example.com or http://10.0.0.7:8080, or the
// absolute path of a program. Without a file .allow a secret has no destination: authors of
// jobs choose names, the operator of the worker chooses destinations.
//
// Names are 1 to 63 of a-z, 0-9, ".", "_" and "-", begin with a letter or a digit, and do not
// end in ".allow". Files are read each time they are used, so a rotated secret counts from the
// next attempt on.
//
// Invariants:
//
//  1. Files are opened below the directory only: neither a name nor a symbolic link leads out
//     of it. Only regular files are read.
//  2. A secret is given only to a destination that its file .allow names exactly.
//  3. Errors contain the names of secrets, never their values.
//  4. [Resolver.MaskStart] and [Resolver.MaskEnd] mask the secrets that were given, and their usual encodings, which
//     package internal/lib/mask lists, also if an excerpt ends within one. What they return does not depend on
//     whether a text has a part of a secret.
package secrets
