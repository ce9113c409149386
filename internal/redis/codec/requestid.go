package codec

import (
	"encoding/hex"
	"strings"
)

// packUUID returns the 16 bytes of a request id that is a UUID in lower case, as clients write
// them. Any other id is returned as rest. Most ids are UUIDs, and every job has one.
func packUUID(id string) (rest string, packed []byte) {
	if len(id) != 36 {
		return id, nil
	}
	packed, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || formatUUID(packed) != id {
		return id, nil
	}
	return "", packed
}

// formatUUID undoes packUUID. It returns "" for anything but 16 bytes.
func formatUUID(packed []byte) string {
	if len(packed) != 16 {
		return ""
	}
	text := []byte("00000000-0000-0000-0000-000000000000")
	hex.Encode(text[0:], packed[0:4])
	hex.Encode(text[9:], packed[4:6])
	hex.Encode(text[14:], packed[6:8])
	hex.Encode(text[19:], packed[8:10])
	hex.Encode(text[24:], packed[10:16])
	return string(text)
}
