package secretfile

import (
	"errors"
	"math"
)

const (
	// fewestBytes is how many different bytes a key of 16 or more has at least. One of 16
	// random bytes has fewer once in 10^12.
	fewestBytes = 8
	// fewestBits is how many bits a secret has at least that is a text, by the number of
	// its characters and how many different ones there are.
	fewestBits = 64
)

var (
	errRepeats = errors.New("it repeats itself: take random bytes")
	errFew     = errors.New("it has too few different bytes to be random")
	errCounts  = errors.New("its bytes count up or down: take random bytes")
)

// CheckKey refuses a key of 16 bytes or more that was not made at random: a repeated byte or
// group of bytes, a count, few different bytes.
func CheckKey(key []byte) error {
	switch {
	case repeats(key):
		return errRepeats
	case counts(key):
		return errCounts
	case distinct(key) < fewestBytes:
		return errFew
	}
	return nil
}

// CheckText refuses a secret that is a text of letters or digits, and could be guessed.
func CheckText(text string) error {
	secret := []byte(text)
	switch {
	case repeats(secret):
		return errRepeats
	case counts(secret):
		return errCounts
	case float64(len(secret))*math.Log2(float64(distinct(secret))) < fewestBits:
		return errFew
	}
	return nil
}

// repeats reports whether a secret is a shorter one over and over.
func repeats(secret []byte) bool {
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

// counts reports whether each byte is as far from the one before it as the next.
func counts(secret []byte) bool {
	for i := 2; i < len(secret); i++ {
		if secret[i]-secret[i-1] != secret[1]-secret[0] {
			return false
		}
	}
	return true
}

func distinct(secret []byte) int {
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
