// Package authn authenticates callers with an access file: static tokens by their hashes, names in
// verified certificates, and JWTs by the keys of their issuers. It also holds the file's
// rules, with which package authz decides.
//
// Invariants:
//
//  1. Nothing is allowed by default: a file without rules, with an empty secret, or with an
//     unknown key is refused as a whole.
//  2. An invalid new file changes nothing; that is logged once.
//  3. No token is stored or logged. Tokens are hashed first, and hashes are compared in
//     constant time.
//  4. The algorithms of a JWT are those that the file allows, not the one that the token
//     names; none and HMAC cannot be allowed.
//  5. Requests for keys of an issuer are bounded in time, size and rate. Known keys stay in use
//     while new ones cannot be fetched. No reload of the files waits for an issuer.
//  6. A caller may learn the cause of a refusal, and nothing else. Claims of a token count
//     only after a key of its issuer has verified it.
package authn
