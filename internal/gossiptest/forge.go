// Package gossiptest forges gossip packets, for tests of what an outsider and a
// holder of the key can do with them.
package gossiptest

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"testing"
)

// What memberlist's packets begin with.
const (
	deadMsg     = 5
	hasLabelMsg = 244
	encryption1 = 1
)

// Departure is a node's own word that it leaves. It is believed if the incarnation is
// not below the node's.
func Departure(node string, incarnation uint32) []byte {
	text := func(s string) []byte { return append([]byte{0xa0 | byte(len(s))}, s...) } // msgpack, up to 31 bytes
	return bytes.Join([][]byte{
		{deadMsg, 0x83}, text("Incarnation"), binary.BigEndian.AppendUint32([]byte{0xce}, incarnation),
		text("Node"), text(node), text("From"), text(node),
	}, nil)
}

// Sealed is a packet under a key, bound to a cluster's label.
func Sealed(t testing.TB, key []byte, label string, packet []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	nonce := make([]byte, gcm.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return gcm.Seal(append([]byte{encryption1}, nonce...), nonce, packet, []byte(label))
}

// Labelled is a packet for the cluster of a label.
func Labelled(label string, packet []byte) []byte {
	return append(append([]byte{hasLabelMsg, byte(len(label))}, label...), packet...)
}
