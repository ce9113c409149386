// Package payloadkeys encrypts payloads for the time that they are stored.
//
// Invariants:
//
//  1. What is sealed by version 2 can be opened for the definition that it was sealed for:
//     the key id and [job.Definition.AppendBound] are authenticated with it (AES-256-GCM,
//     additional data). By version 1 these are namespace, job id and key id only.
//  2. The first key of the ring seals, all of them open. A key that is taken out of the
//     ring makes what it sealed unreadable.
//  3. A ring file that cannot be read changes nothing: the keys that were read last
//     stay.
//  4. Nothing here tells what a payload or a key is, in an error or elsewhere.
//  5. A strict ring opens nothing but version 2: neither what is not sealed, nor version 1.
//     A ring that has sealed by version 2 never seals by version 1 again.
//
// Nothing in a payload says when it was sealed: what was sealed for the same definition
// before opens again, as long as its key is in the ring.
//
// A sealed payload is: version (1 byte, 1 or 2) | nonce (12, random) | ciphertext | tag (16).
package payloadkeys
