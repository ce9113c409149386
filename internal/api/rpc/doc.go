// Package rpc translates between gRPC and the model: requests into values of
// package job, answers and errors back. It decides nothing, but for whom to let in,
// and that by what an [Authority] says.
//
// Invariants:
//
//  1. No type of the API goes further than this package, and no type of the
//     model is sent.
//  2. A definition that is written out and read back is the same definition:
//     what a client reads it can send back unchanged.
//  3. Every error has its code in one table (errors.go). INVALID_ARGUMENT names
//     the field, codes that are worth repeating say when, errors of the network are
//     UNAVAILABLE, and what the table does not know is INTERNAL: logged here, not shown to the client.
//  4. A panic in a call ends that call only.
//  5. No method is served without a row in the table of permissions.go. With an
//     Authority no handler sees a request before its caller is known and allowed
//     that; refusals tell what permission is missing and nothing else.
//  6. A lease that a worker names is passed on only if it was given to that worker,
//     by whatever node: see seal.
//  7. With an Authority, what connections send and the streams that they open before a
//     caller is known on them are bounded, each for itself and all together: see unproved.
package rpc
