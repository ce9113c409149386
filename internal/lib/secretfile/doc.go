// Package secretfile reads files that hold secrets or permissions, and rejects weak keys.
//
// Invariants:
//
//  1. A file that any user of the host may write is refused, and so is a file that any
//     user may replace, directly or by replacing a directory or link of its path: such a
//     user would choose the secret. A directory on a read-only mount cannot be changed.
//  2. A file that any user may read is accepted, and can be reported: Kubernetes mounts
//     Secrets with the mode that a pod requests, 0644 by default, in places that no other
//     user can reach.
//  3. No error contains content of a file.
package secretfile
