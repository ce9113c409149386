package membership

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// maxKeyFile bounds the key file, so that a wrong path is noticed early.
const maxKeyFile = 64 << 10

// maxKeys bounds the keys that are tried on one packet or stream. A rotation needs two.
const maxKeys = 8

// ReadKeys reads a file of gossip keys: the base64 of 16, 24 or 32 bytes on each line, at most eight. The first
// one encrypts, all of them decrypt. Empty lines and lines that begin with # are ignored. No error contains a
// key.
func ReadKeys(path string) ([][]byte, error) {
	text, err := secretfile.Read(path, maxKeyFile)
	if err != nil {
		return nil, err
	}
	var keys [][]byte
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || memberlist.ValidateKey(key) != nil {
			return nil, fmt.Errorf("%s, line %d: want the base64 of 16, 24 or 32 bytes; make one with: head -c 32 "+
				"/dev/urandom | base64", path, number)
		}
		if err := secretfile.CheckKey(key); err != nil {
			return nil, fmt.Errorf("%s, line %d: the key could be guessed: %w", path, number, err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: holds no key", path)
	}
	if len(keys) > maxKeys {
		return nil, fmt.Errorf("%s: holds %d keys: at most %d", path, len(keys), maxKeys)
	}
	return keys, nil
}

// installKeys replaces the keys of the ring; the first one encrypts.
func installKeys(ring *memberlist.Keyring, keys [][]byte) error {
	if err := orderKeys(ring, keys); err != nil {
		return err
	}
	for _, key := range slices.Backward(obsoleteKeys(ring, keys)) {
		if err := ring.RemoveKey(key); err != nil {
			return err
		}
	}
	return nil
}

// orderKeys adds missing keys and moves obsolete ones to the end. Packets are decrypted with lists that are read
// without a lock, and the removal of a key moves those after it within such a list.
func orderKeys(ring *memberlist.Keyring, keys [][]byte) error {
	for _, key := range keys {
		if err := ring.AddKey(key); err != nil {
			return err
		}
	}
	if len(obsoleteKeys(ring, keys)) == 0 {
		return ring.UseKey(keys[0])
	}
	for _, key := range slices.Backward(keys) {
		if err := ring.UseKey(key); err != nil {
			return err
		}
	}
	return nil
}

// obsoleteKeys are the keys of the ring that are not in keys, in the ring's order.
func obsoleteKeys(ring *memberlist.Keyring, keys [][]byte) [][]byte {
	return slices.DeleteFunc(slices.Clone(ring.GetKeys()), func(k []byte) bool { return containsKey(keys, k) })
}

func containsKey(keys [][]byte, key []byte) bool {
	return slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) })
}

// keyFingerprint identifies a key without showing it, so that people can compare nodes.
func keyFingerprint(key []byte) string {
	sum := sha256.Sum256(key)
	return fmt.Sprintf("%x", sum[:4])
}

// KeysError is the error of the key file while it is invalid and the keys read before stay in use; nil while it
// is valid.
func (c *Cluster) KeysError() error { return c.keysStatus.Fault() }

// reloadKeys reloads the key file periodically until ctx ends. An invalid file leaves the ring unchanged and is
// logged once for each change.
func (c *Cluster) reloadKeys(ctx context.Context) {
	ticker := time.NewTicker(c.o.KeysEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		keys, err := ReadKeys(c.o.KeyFile)
		changed := err == nil && !slices.EqualFunc(keys, c.keys, bytes.Equal)
		if changed {
			err = installKeys(c.o.ring, keys)
		}
		c.keysStatus.Update(err, c.o.Logger, "gossip key file", c.o.KeyFile)
		if !changed || err != nil {
			continue
		}
		c.keys = keys
		secretfile.WarnIfExposed(c.o.Logger, c.o.KeyFile)
		c.o.Logger.Info("gossip keys changed", "keys", len(keys), "encrypts", keyFingerprint(keys[0]))
	}
}
