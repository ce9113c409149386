// Package authn proves who calls, from an access file: static tokens by their
// hashes, names in verified certificates, and JWTs by the keys of their issuers. It
// also holds the file's rules, which package authz decides by.
//
// Invariants:
//
//  1. There is no way in by default: a file without rules, with an empty secret, or
//     with a key that is not known is refused as a whole.
//  2. A file that is replaced by a broken one changes nothing; that is logged once.
//  3. No token is stored, logged, or compared in a time that depends on it: tokens
//     are hashed first, and hashes compared in constant time.
//  4. The algorithms of a JWT are those the file allows, never those it asks for
//     itself; none and HMAC cannot be allowed.
//  5. Keys of an issuer are asked for with bounds on time, size and pace. Keys that
//     are known stay in use while new ones cannot be had. No change of the files waits for an issuer.
//  6. A caller may know the cause of a refusal, and no more: a token speaks for itself only once a key of its
//     issuer has verified it.
package authn
