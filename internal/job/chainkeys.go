package job

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// ChainKey signs the chain.
type ChainKey struct {
	ID  string
	Key ed25519.PrivateKey
}

const maxChainKeyID = 64

// ParseChainKeys reads a file of signing keys: on each line an id and the base64 of a seed of 32 bytes.
// The first one signs; the others are there to be known by their ids while keys are replaced.
func ParseChainKeys(text string) ([]ChainKey, error) {
	var out []ChainKey
	err := eachKey(text, ed25519.SeedSize, func(id string, seed []byte) error {
		out = append(out, ChainKey{ID: id, Key: ed25519.NewKeyFromSeed(seed)})
		return nil
	})
	return out, err
}

// ParseChainPublicKeys reads a file of public keys: on each line an id and the base64 of 32 bytes.
func ParseChainPublicKeys(text string) (map[string]ed25519.PublicKey, error) {
	out := map[string]ed25519.PublicKey{}
	err := eachKey(text, ed25519.PublicKeySize, func(id string, key []byte) error {
		out[id] = ed25519.PublicKey(key)
		return nil
	})
	return out, err
}

// eachKey takes lines of id and key apart. Faults name lines, never what is on them.
func eachKey(text string, size int, take func(id string, key []byte) error) error {
	known := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		parts := strings.Fields(line)
		if len(parts) == 0 || strings.HasPrefix(parts[0], "#") {
			continue
		}
		if len(parts) != 2 {
			return fmt.Errorf("line %d: want an id and a key", i+1)
		}
		key, err := base64.StdEncoding.DecodeString(parts[1])
		switch {
		case err != nil || len(key) != size:
			return fmt.Errorf("line %d: want the base64 of %d bytes", i+1, size)
		case bytes.Count(key, key[:1]) == size:
			return fmt.Errorf("line %d: the key is one byte repeated", i+1)
		case len(parts[0]) > maxChainKeyID:
			return fmt.Errorf("line %d: the id has more than %d bytes", i+1, maxChainKeyID)
		case known[parts[0]]:
			return fmt.Errorf("line %d: the id is there twice", i+1)
		}
		known[parts[0]] = true
		if err := take(parts[0], key); err != nil {
			return err
		}
	}
	if len(known) == 0 {
		return errors.New("there is no key")
	}
	return nil
}

// PrivateLine is the line of a node's file, and secret.
func (k ChainKey) PrivateLine() string { return keyLine(k.ID, k.Key.Seed()) }

// PublicLine is what verifies, and may be shown to everybody.
func (k ChainKey) PublicLine() string { return keyLine(k.ID, k.Key.Public().(ed25519.PublicKey)) }

func keyLine(id string, key []byte) string { return id + " " + base64.StdEncoding.EncodeToString(key) }
