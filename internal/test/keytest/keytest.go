// Package keytest makes keys for tests, which are the same each time and look random.
package keytest

import "crypto/sha256"

// Key derives a key of 32 bytes from a text.
func Key(word string) []byte {
	sum := sha256.Sum256([]byte(word))
	return sum[:]
}
