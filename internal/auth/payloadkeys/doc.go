// Package payloadkeys encrypts payloads at rest.
//
// Invariants:
//
//  1. A payload that is encrypted by version 2 can be decrypted only for the definition that
//     it was encrypted for: the key id and [job.Definition.AppendBound] are authenticated with
//     it (AES-256-GCM, additional data). Version 1 authenticates only namespace, job id and
//     key id.
//  2. The first key of the ring encrypts, all of them decrypt. Payloads of a removed key are
//     unreadable.
//  3. An invalid key file changes nothing: the keys read before stay in use.
//  4. No error contains a payload or a key.
//  5. A strict ring decrypts version 2 only: neither unencrypted payloads nor version 1. A ring
//     that has encrypted by version 2 never encrypts by version 1 again.
//
// A payload does not contain the time of its encryption: an older payload of the same definition
// can be decrypted as long as its key is in the ring.
//
// An encrypted payload is: version (1 byte, 1 or 2) | nonce (12, random) | ciphertext | tag (16).
package payloadkeys
