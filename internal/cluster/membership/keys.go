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

// maxKeyFile bounds the file of keys, so that a wrong path is noticed early.
const maxKeyFile = 64 << 10

// maxKeys bounds the keys that one packet or stream is tried with. Replacing one takes two.
const maxKeys = 8

// ReadKeys reads a file of gossip keys: the base64 of 16, 24 or 32 bytes on each
// line, at most eight. The first one encrypts, all of them decrypt. Empty lines and those that
// begin with # are passed over. No error shows a key.
func ReadKeys(path string) ([][]byte, error) {
	text, err := secretfile.Read(path, maxKeyFile)
	if err != nil {
		return nil, err
	}
	var keys [][]byte
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || memberlist.ValidateKey(key) != nil {
			return nil, fmt.Errorf("%s, line %d: want the base64 of 16, 24 or 32 bytes; make one with: head -c 32 /dev/urandom | base64", path, number)
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

// install makes the ring hold these keys, the first of them as the one that encrypts.
func install(ring *memberlist.Keyring, keys [][]byte) error {
	if err := arrange(ring, keys); err != nil {
		return err
	}
	for _, key := range slices.Backward(obsolete(ring, keys)) {
		if err := ring.RemoveKey(key); err != nil {
			return err
		}
	}
	return nil
}

// arrange adds what is missing and brings what has to go to the end: packets are
// decrypted with lists that are read without a lock, and the removal of a key moves
// those behind it within such a list.
func arrange(ring *memberlist.Keyring, keys [][]byte) error {
	for _, key := range keys {
		if err := ring.AddKey(key); err != nil {
			return err
		}
	}
	if len(obsolete(ring, keys)) == 0 {
		return ring.UseKey(keys[0])
	}
	for _, key := range slices.Backward(keys) {
		if err := ring.UseKey(key); err != nil {
			return err
		}
	}
	return nil
}

// obsolete are the keys of the ring that are not among these, in its order.
func obsolete(ring *memberlist.Keyring, keys [][]byte) [][]byte {
	return slices.DeleteFunc(slices.Clone(ring.GetKeys()), func(k []byte) bool { return holds(keys, k) })
}

func holds(keys [][]byte, key []byte) bool {
	return slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) })
}

// fingerprint lets people compare what nodes use without showing it.
func fingerprint(key []byte) string {
	sum := sha256.Sum256(key)
	return fmt.Sprintf("%x", sum[:4])
}

// KeysFault is why the file of keys cannot be used, so that the keys read before are in
// force; nil while it can.
func (c *Cluster) KeysFault() error {
	if fault := c.keysFault.Load(); fault != nil {
		return *fault
	}
	return nil
}

// followKeys takes over what the file of keys holds, until ctx ends. A file that
// cannot be used leaves the ring as it is, and is told of once for each change.
func (c *Cluster) followKeys(ctx context.Context) {
	ticker := time.NewTicker(c.o.KeysEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		keys, err := ReadKeys(c.o.KeyFile)
		if err == nil && slices.EqualFunc(keys, c.keys, bytes.Equal) {
			c.gossipKeysValid()
			continue
		}
		if err == nil {
			err = install(c.o.ring, keys)
		}
		if err != nil {
			if before := c.keysFault.Swap(&err); before == nil || (*before).Error() != err.Error() {
				c.o.Logger.Warn("new gossip keys are not usable: the older ones stay in force", "error", err)
			}
			continue
		}
		c.keys = keys
		c.gossipKeysValid()
		secretfile.WarnIfExposed(c.o.Logger, c.o.KeyFile)
		c.o.Logger.Info("gossip keys changed", "keys", len(keys), "encrypts", fingerprint(keys[0]))
	}
}

// gossipKeysValid notes that the file can be used, and logs it if it could not before.
func (c *Cluster) gossipKeysValid() {
	if c.keysFault.Swap(nil) != nil {
		c.o.Logger.Info("gossip key file is valid again", "path", c.o.KeyFile)
	}
}
