package main

import (
	"encoding/base64"
	"fmt"

	"github.com/fermata-io/fermata/internal/config"
)

// gossipKey reads a key of 16, 24 or 32 bytes in base64.
func gossipKey(path string) ([]byte, error) {
	text, err := config.ReadSecretFile(path)
	if err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		switch len(key) {
		case 16, 24, 32:
			return key, nil
		}
	}
	return nil, fmt.Errorf("%s: want the base64 of 16, 24 or 32 bytes; make one with: head -c 32 /dev/urandom | base64", path)
}
