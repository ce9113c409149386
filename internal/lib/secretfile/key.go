package secretfile

import (
	"errors"
	"math"
)

const (
	// fewestBytes is the minimum number of different bytes in a key of 16 bytes or more. A key of 16 random bytes has
	// fewer with a probability of 10^-12.
	fewestBytes = 8
	// fewestBits is the minimum number of bits in a secret text, estimated from its length and its number of different
	// characters.
	fewestBits = 64
)

var (
	errRepeats = errors.New("it repeats itself: take random bytes")
	errFew     = errors.New("it has too few different bytes to be random")
	errCounts  = errors.New("its bytes count up or down: take random bytes")
)

// CheckKey refuses a key of 16 bytes or more that is not random: a repeated byte or group of bytes, a sequence, few
// different bytes.
func CheckKey(key []byte) error {
	switch {
	case isRepetition(key):
		return errRepeats
	case isSequence(key):
		return errCounts
	case countDistinct(key) < fewestBytes:
		return errFew
	}
	return nil
}

// CheckText refuses a secret text that could be guessed.
func CheckText(text string) error {
	secret := []byte(text)
	switch {
	case isRepetition(secret):
		return errRepeats
	case isSequence(secret):
		return errCounts
	case float64(len(secret))*math.Log2(float64(countDistinct(secret))) < fewestBits:
		return errFew
	}
	return nil
}

// isRepetition reports whether a secret repeats a shorter one.
func isRepetition(secret []byte) bool {
	for period := 1; period <= len(secret)/2; period++ {
		same := true
		for i := period; i < len(secret) && same; i++ {
			same = secret[i] == secret[i-period]
		}
		if same {
			return true
		}
	}
	return false
}

// isSequence reports whether all bytes have the same difference from the previous byte.
func isSequence(secret []byte) bool {
	for i := 2; i < len(secret); i++ {
		if secret[i]-secret[i-1] != secret[1]-secret[0] {
			return false
		}
	}
	return true
}

func countDistinct(secret []byte) int {
	var seen [256]bool
	n := 0
	for _, b := range secret {
		if !seen[b] {
			seen[b] = true
			n++
		}
	}
	return n
}
