package job

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// ChainKey is a signing key of the chain.
type ChainKey struct {
	ID  string
	Key ed25519.PrivateKey
}

const maxChainKeyID = 64

// Each line begins with the purpose of its key, because a seed and a public key both have 32 bytes.
const (
	privateKeyWord = "private"
	publicKeyWord  = "public"
)

// ParseChainKeys parses a file of signing keys: on each line "private", an id and the base64 of a seed of 32
// bytes. The first key signs. The others are known by their ids while keys are rotated.
func ParseChainKeys(text string) ([]ChainKey, error) {
	var out []ChainKey
	err := parseKeyLines(text, privateKeyWord, ed25519.SeedSize, func(id string, seed []byte) {
		out = append(out, ChainKey{ID: id, Key: ed25519.NewKeyFromSeed(seed)})
	})
	return out, err
}

// ParseChainPublicKeys reads a file of public keys: on each line "public", an id and the base64 of 32 bytes.
func ParseChainPublicKeys(text string) (map[string]ed25519.PublicKey, error) {
	out := map[string]ed25519.PublicKey{}
	err := parseKeyLines(text, publicKeyWord, ed25519.PublicKeySize, func(id string, key []byte) {
		out[id] = ed25519.PublicKey(key)
	})
	return out, err
}

// parseKeyLines splits lines of word, id and key. Errors give line numbers, never the content.
func parseKeyLines(text, word string, size int, take func(id string, key []byte)) error {
	known := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		parts := strings.Fields(line)
		if len(parts) == 0 || strings.HasPrefix(parts[0], "#") {
			continue
		}
		id, key, err := parseKeyLine(parts, word, size)
		if err == nil && known[id] {
			err = errors.New("the id is there twice")
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
		known[id] = true
		take(id, key)
	}
	if len(known) == 0 {
		return errors.New("there is no key")
	}
	return nil
}

func parseKeyLine(parts []string, word string, size int) (id string, key []byte, err error) {
	switch {
	case word == privateKeyWord && parts[0] == publicKeyWord:
		return "", nil, errors.New("this is a public key, which verifies; want the private one, which signs: what " +
			"'scheduler audit-key new' prints to standard output")
	case word == publicKeyWord && parts[0] == privateKeyWord:
		return "", nil, errors.New("this is a private key, which nodes alone should have; want the public one: " +
			"what 'scheduler audit-key new' prints to standard error")
	case len(parts) != 3 || parts[0] != word:
		return "", nil, fmt.Errorf("want the word %s, an id and a key, as 'scheduler audit-key new' prints them", word)
	case len(parts[1]) > maxChainKeyID:
		return "", nil, fmt.Errorf("the id has more than %d bytes", maxChainKeyID)
	}
	key, err = base64.StdEncoding.DecodeString(parts[2])
	switch {
	case err != nil || len(key) != size:
		return "", nil, fmt.Errorf("want the base64 of %d bytes", size)
	case bytes.Count(key, key[:1]) == size:
		return "", nil, errors.New("the key is one byte repeated")
	}
	return parts[1], key, nil
}

// PrivateLine returns the line of a node's file, and secret.
func (k ChainKey) PrivateLine() string { return keyLine(privateKeyWord, k.ID, k.Key.Seed()) }

// PublicLine returns what verifies, and may be shown to everybody.
func (k ChainKey) PublicLine() string {
	return keyLine(publicKeyWord, k.ID, k.Key.Public().(ed25519.PublicKey))
}

func keyLine(word, id string, key []byte) string {
	return word + " " + id + " " + base64.StdEncoding.EncodeToString(key)
}
