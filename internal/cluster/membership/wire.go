package membership

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// The format of memberlist's protocol 2, which this build and the previous one use.
const (
	labelByte         = 244 // precedes the length of the label, and the label
	encryptionVersion = 1   // AES-GCM without padding
	nonceSize         = 12
	// encryptionOverhead is the size of version, nonce and tag.
	encryptionOverhead = 1 + nonceSize + 16
	// frameHeader is the size of type and length of an encrypted message in a stream.
	frameHeader = 5
	crcHeader   = 5
)

// Types of messages.
const (
	pingType         = 0
	indirectPingType = 1
	ackType          = 2
	suspectType      = 3
	aliveType        = 4
	deadType         = 5
	pushPullType     = 6
	compoundType     = 7
	compressedType   = 9
	encryptedType    = 10
	nackType         = 11
	crcType          = 12
	errorType        = 13
)

// validatePacket returns the reason to refuse a decrypted packet; empty: a node may send it. Nodes send no
// messages of their own, and do not nest packets. Nodes with keys do not compress. Incarnations above the most are
// refused, see [maxIncarnation].
func validatePacket(plain []byte, mostIncarnation uint32) refusal {
	return validateParts(cutChecksum(plain), mostIncarnation)
}

// validatePlainPacket validates a packet that was sent without a key like [validatePacket]. Without a key, nodes of
// the previous build compress packets.
func validatePlainPacket(plain []byte, mostIncarnation uint32) refusal {
	plain = cutChecksum(plain)
	if len(plain) == 0 || plain[0] != compressedType {
		return validateParts(plain, mostIncarnation)
	}
	packet, why := decompressPacket(plain[1:])
	if why != "" {
		return why
	}
	return validateParts(packet, mostIncarnation)
}

// cutChecksum returns a packet without its checksum.
func cutChecksum(plain []byte) []byte {
	if len(plain) >= crcHeader && plain[0] == crcType {
		return plain[crcHeader:]
	}
	return plain
}

// validateParts validates the messages of a packet.
func validateParts(plain []byte, mostIncarnation uint32) refusal {
	if len(plain) == 0 {
		return refusedContent
	}
	if plain[0] != compoundType {
		return validateMessage(plain, mostIncarnation)
	}
	if len(plain) < 2 {
		return refusedContent
	}
	// The number of parts, their lengths, and the parts.
	lengths := plain[2:]
	n := int(plain[1])
	if len(lengths) < 2*n {
		return refusedContent
	}
	parts := lengths[2*n:]
	for i := range n {
		length := int(binary.BigEndian.Uint16(lengths[2*i:]))
		if length > len(parts) {
			return refusedContent
		}
		if why := validateMessage(parts[:length], mostIncarnation); why != "" {
			return why
		}
		parts = parts[length:]
	}
	return ""
}

// validateMessage validates one message like [validatePacket].
func validateMessage(m []byte, mostIncarnation uint32) refusal {
	if !hasForm(m) {
		return refusedContent
	}
	switch m[0] {
	case pingType, indirectPingType, ackType, nackType:
		return validateProbe(m)
	case suspectType, aliveType, deadType:
		var about struct{ Incarnation uint32 }
		if err := codec.NewDecoderBytes(m[1:], &codec.MsgpackHandle{}).Decode(&about); err == nil &&
			about.Incarnation <= mostIncarnation {
			return ""
		}
	}
	return refusedContent
}

// hasForm reports whether plain begins with a message in the form in which nodes send it: see [frame.takeMessage].
func hasForm(plain []byte) bool { return frameOf(plain).takeMessage() == "" }

// maxProbe bounds a ping and its answer: two names of maxName, addresses and numbers.
const maxProbe = 1024

func validateProbe(m []byte) refusal {
	if len(m) > maxProbe {
		return refusedContent
	}
	return ""
}

// A node refutes a false state of itself with a greater incarnation. Incarnations above a bound are refused, so
// that a node can always refute. The bound grows faster than nodes need to refute. Without it, a state with the
// greatest number could not be refuted until all nodes had been stopped. It has to be about the same for all nodes, or
// some would refuse the answer of another: so they take it from a clock that they share.
const (
	minMaxIncarnation     = 1 << 20 // independent of any clock
	incarnationsPerSecond = 10      // sufficient for 13 years
)

var incarnationEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func maxIncarnation(now time.Time) uint32 {
	seconds := max(0, now.Sub(incarnationEpoch)) / time.Second
	return uint32(min(minMaxIncarnation+incarnationsPerSecond*int64(seconds), math.MaxUint32/2))
}

// exchangeHeader is the header of a list of members.
type exchangeHeader struct {
	Nodes        int
	UserStateLen int
	Join         bool
}

// decodeExchangeHeader returns the number of members of a list; false: no node sends such a list. Memory for the
// announced number is allocated before the members are read, so the number is bounded here.
func decodeExchangeHeader(d *codec.Decoder) (members int, ok bool) {
	var e exchangeHeader
	err := d.Decode(&e)
	return e.Nodes, err == nil && e.Nodes >= 0 && e.Nodes <= MaxMembers && e.UserStateLen == 0
}

// validator returns the reason to refuse the message of a stream; empty: a node may send it.
type validator func(plain []byte, mostIncarnation uint32) refusal

// validateRequest returns the reason to refuse the first message of an incoming stream; empty: a node may send
// it.
func validateRequest(plain []byte, mostIncarnation uint32) refusal {
	switch {
	case !hasForm(plain):
	case plain[0] == pingType:
		return validateProbe(plain)
	case plain[0] == pushPullType:
		return validateExchange(plain[1:], mostIncarnation)
	}
	return refusedContent
}

// validateReply does the same for the reply on an outgoing stream.
func validateReply(plain []byte, mostIncarnation uint32) refusal {
	switch {
	case !hasForm(plain):
	case plain[0] == ackType, plain[0] == errorType:
		return validateProbe(plain)
	case plain[0] == pushPullType:
		return validateExchange(plain[1:], mostIncarnation)
	}
	return refusedContent
}

func validateExchange(text []byte, mostIncarnation uint32) refusal {
	d := codec.NewDecoderBytes(text, &codec.MsgpackHandle{})
	members, ok := decodeExchangeHeader(d)
	if !ok {
		return refusedContent
	}
	for range members {
		var about struct{ Incarnation uint32 }
		if err := d.Decode(&about); err != nil || about.Incarnation > mostIncarnation {
			return refusedContent
		}
	}
	return ""
}
