package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// Limits of a key file.
const (
	maxKeys   = 3
	minKeyLen = 24
	maxKeyLen = 64
)

// keyPrefix begins a key as Standard Webhooks writes it; it may be left out.
const keyPrefix = "whsec_"

// readKeys reads a key file: the base64 of 24 to 64 bytes on each line, after an optional whsec_. Its errors
// never quote the content.
func readKeys(path string) (keys [][]byte, text []byte, err error) {
	if path == "" {
		return nil, nil, errors.New("is needed: a file with the base64 of 24 to 64 random bytes")
	}
	text, err = secretfile.Read(path, maxFile)
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(line, keyPrefix))
		if err != nil || len(key) < minKeyLen || len(key) > maxKeyLen {
			return nil, nil, fmt.Errorf("%s: want the base64 of %d to %d bytes on each line; make one with: "+
				"head -c 32 /dev/urandom | base64", path, minKeyLen, maxKeyLen)
		}
		if err := secretfile.CheckKey(key); err != nil {
			return nil, nil, fmt.Errorf("%s: a key could be guessed: %w", path, err)
		}
		keys = append(keys, key)
	}
	if len(keys) < 1 || len(keys) > maxKeys {
		return nil, nil, fmt.Errorf("%s: has %d keys, want 1 to %d", path, len(keys), maxKeys)
	}
	return keys, text, nil
}

// signBody returns the value of webhook-signature: one for each key, so that receivers can
// go over from one key to the next.
func signBody(keys [][]byte, id string, at time.Time, body []byte) string {
	var all []string
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		// Writing to a hash never fails.
		_, _ = fmt.Fprintf(mac, "%s.%s.", id, strconv.FormatInt(at.Unix(), 10))
		_, _ = mac.Write(body)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(all, " ")
}
