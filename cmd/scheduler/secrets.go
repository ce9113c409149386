package main

import (
	"encoding/base64"
	"fmt"

	"github.com/fermata-io/fermata/internal/config"
)

// gossipKey reads a key of 16, 24 or 32 bytes, raw or in base64.
func gossipKey(path string) ([]byte, error) {
	text, err := config.ReadSecretFile(path)
	if err != nil {
		return nil, err
	}
	for _, key := range [][]byte{decodeBase64(text), []byte(text)} {
		switch len(key) {
		case 16, 24, 32:
			return key, nil
		}
	}
	return nil, fmt.Errorf("%s: a gossip key has 16, 24 or 32 bytes, or base64 of them", path)
}

func decodeBase64(text string) []byte {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return key
}
