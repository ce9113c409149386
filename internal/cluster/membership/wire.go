package membership

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// What memberlist says by its protocol 2, which this build and the previous one speak.
const (
	labelByte     = 244 // before the length of the label, and the label
	sealedVersion = 1   // AES-GCM without padding
	nonceSize     = 12
	// sealedOverhead is that of encryption: version, nonce and tag.
	sealedOverhead = 1 + nonceSize + 16
	// frameHeader are the type and the length of an encrypted message in a stream.
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
	encryptedType    = 10
	nackType         = 11
	crcType          = 12
	errorType        = 13
)

// packetFault is why a packet that was decrypted is not one that a node sends, empty if it is.
// Nodes with keys compress nothing, say nothing of their own, and nest no packets; what is
// compressed grows a thousandfold.
func packetFault(plain []byte) refusal {
	if len(plain) >= crcHeader && plain[0] == crcType {
		plain = plain[crcHeader:]
	}
	if len(plain) == 0 {
		return refusedContent
	}
	if plain[0] != compoundType {
		return messageFault(plain)
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
		if why := messageFault(parts[:length]); why != "" {
			return why
		}
		parts = parts[length:]
	}
	return ""
}

// messageFault is packetFault of one message.
func messageFault(m []byte) refusal {
	if len(m) == 0 {
		return refusedContent
	}
	switch m[0] {
	case pingType, indirectPingType, ackType, nackType:
		return ""
	case suspectType, aliveType, deadType:
		var about struct{ Incarnation uint32 }
		if err := codec.NewDecoderBytes(m[1:], &codec.MsgpackHandle{}).Decode(&about); err == nil && refutable(about.Incarnation) {
			return ""
		}
	}
	return refusedContent
}

// A node refutes what others say of it by a greater incarnation. So that it always can, nobody takes
// over an incarnation that is greater than a bound, which grows faster than a node has to refute.
// Who knew no bound could say something with the last number there is, and nobody could say
// otherwise before all nodes had been stopped.
const (
	leastIncarnations     = 1 << 20 // whatever this host's clock says
	incarnationsPerSecond = 10      // for 13 years
)

var incarnationsBegin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func greatestIncarnation(now time.Time) uint32 {
	seconds := max(0, now.Sub(incarnationsBegin)) / time.Second
	return uint32(min(leastIncarnations+incarnationsPerSecond*int64(seconds), math.MaxUint32/2))
}

func refutable(incarnation uint32) bool { return incarnation <= greatestIncarnation(time.Now()) }

// exchange is what a list of members begins with.
type exchange struct {
	Nodes        int
	UserStateLen int
	Join         bool
}

// callFault is why the message of a stream is not one that a node begins with, empty if it
// is. Room for as many members as it says is made before they are read.
func callFault(plain []byte) refusal {
	switch {
	case len(plain) == 0:
	case plain[0] == pingType:
		return ""
	case plain[0] == pushPullType:
		return exchangeFault(plain[1:])
	}
	return refusedContent
}

// answerFault is callFault of the answer to a stream.
func answerFault(plain []byte) refusal {
	switch {
	case len(plain) == 0:
	case plain[0] == ackType, plain[0] == errorType:
		return ""
	case plain[0] == pushPullType:
		return exchangeFault(plain[1:])
	}
	return refusedContent
}

func exchangeFault(text []byte) refusal {
	d := codec.NewDecoderBytes(text, &codec.MsgpackHandle{})
	var e exchange
	if err := d.Decode(&e); err != nil || e.Nodes < 0 || e.Nodes > MaxMembers || e.UserStateLen != 0 {
		return refusedContent
	}
	for range e.Nodes {
		var about struct{ Incarnation uint32 }
		if err := d.Decode(&about); err != nil || !refutable(about.Incarnation) {
			return refusedContent
		}
	}
	return ""
}
