package payloadkeys

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
)

// signatureSize is how many bytes of an HMAC a signature has: 128 bits.
const signatureSize = 16

var signatureEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// Sign returns a signature of a text by the encrypting key: letters and digits, which [Ring.Verify] accepts at each
// node that has this key.
func (r *Ring) Sign(text string) string {
	k := r.keys.Content()
	return signatureEncoding.EncodeToString(authenticate(k.signing[k.sealingID], text)[:signatureSize])
}

// Verify reports whether a signature of a text is by one of the keys.
func (r *Ring) Verify(text, signature string) bool {
	have, err := signatureEncoding.DecodeString(signature)
	if err != nil || len(have) != signatureSize {
		return false
	}
	for _, key := range r.keys.Content().signing {
		if hmac.Equal(have, authenticate(key, text)[:signatureSize]) {
			return true
		}
	}
	return false
}

// authenticate is HMAC-SHA256 (RFC 2104).
func authenticate(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
