// Package keytest makes keys for tests, which are the same each time and look random.
package keytest

import "crypto/sha256"

// Key is a key of 32 bytes for a word.
func Key(word string) []byte {
	sum := sha256.Sum256([]byte(word))
	return sum[:]
}
