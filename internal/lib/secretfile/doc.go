// Package secretfile reads files that hold secrets, or that decide who may do what, and
// judges keys.
//
// Invariants:
//
//  1. A file that any user of the host may write is not read, and neither is one that
//     any user may replace, or a directory or link on the way to it: whoever writes it
//     would choose the secret. Nobody replaces what is in a directory that is mounted
//     read-only.
//  2. A file that any user may read is read, and can be reported: Kubernetes mounts
//     Secrets with the mode that a pod asks for, by default 0644, where no other user
//     reaches them.
//  3. No error holds anything of what is in a file.
package secretfile
