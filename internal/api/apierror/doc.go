// Package apierror maps errors of the core to the gRPC statuses that clients receive.
//
// Invariants:
//
//  1. Every error has its code in one table. INVALID_ARGUMENT names the field, a code for which a retry helps
//     has the delay before that retry, and network errors are UNAVAILABLE.
//  2. An error that the table does not have is INTERNAL. Its text does not reach the client: the node logs it.
//  3. A reason that programs can compare (google.rpc.ErrorInfo) never changes; the message for people may.
package apierror
