// Package seal encrypts payloads for the time that they are stored.
//
// Invariants:
//
//  1. What is sealed can be opened for the job that it was sealed for and no other:
//     namespace, job id and key id are authenticated with it (AES-256-GCM, additional
//     data).
//  2. The first key of the ring seals, all of them open. A key that is taken out of the
//     ring makes what it sealed unreadable.
//  3. A ring file that cannot be read changes nothing: the keys that were read last
//     stay.
//  4. Nothing here tells what a payload or a key is, in an error or elsewhere.
//
// A sealed payload is: version (1 byte, 1) | nonce (12, random) | ciphertext | tag (16).
package seal
