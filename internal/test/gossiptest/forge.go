// Package gossiptest forges gossip packets, for tests of what an outsider and a
// holder of the key can do with them.
package gossiptest

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"testing"
)

// What memberlist's packets begin with.
const (
	aliveMsg    = 4
	deadMsg     = 5
	hasLabelMsg = 244
	encryption1 = 1
)

// Departure is a node's own message that it leaves. It is accepted if the incarnation is not below the node's.
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

// Claim is what a node gossips about itself: that it is alive, where its gossip is, and its metadata. It is
// believed if the incarnation is above the node's, and refuted when the node receives it.
func Claim(node string, incarnation uint32, addr netip.AddrPort, meta []byte) []byte {
	text := func(s string) []byte { return append([]byte{0xa0 | byte(len(s))}, s...) } // msgpack, up to 31 bytes
	raw := func(b []byte) []byte {
		return append(binary.BigEndian.AppendUint16([]byte{0xda}, uint16(len(b))), b...)
	}
	return bytes.Join([][]byte{
		{aliveMsg, 0x86}, text("Incarnation"), binary.BigEndian.AppendUint32([]byte{0xce}, incarnation),
		text("Node"), text(node), text("Addr"), raw(addr.Addr().AsSlice()),
		text("Port"), binary.BigEndian.AppendUint16([]byte{0xcd}, addr.Port()), text("Meta"), raw(meta),
		text("Vsn"), raw([]byte{1, 5, 2, 0, 0, 0}),
	}, nil)
}
