package membership

import (
	"bytes"
	"compress/lzw"
	"encoding/binary"
	"io"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// firstFrameRoom is the initial size of the buffer of a frame. The buffer grows with the bytes that arrive, so
// that a client that only announces a length reserves nothing.
const firstFrameRoom = 4 << 10

// frame is a message that is read incrementally, because its length is known only when all of it is there. The
// source is read ahead: what follows the message is lost.
type frame struct {
	source io.Reader
	keep   func(int) bool // reserves memory before it is allocated; false: too much
	most   int            // bounds the bytes of the message
	buffer []byte         // what was read
	taken  int            // how many bytes of the buffer are known to belong to the message
}

// frameOf is a frame that has been read.
func frameOf(text []byte) *frame { return &frame{buffer: text, most: len(text)} }

// message is what was taken.
func (f *frame) message() []byte { return f.buffer[:f.taken] }

// take returns the next n bytes. They are valid until the next call.
func (f *frame) take(n int) ([]byte, refusal) {
	if n > f.most-f.taken {
		return nil, refusedSize
	}
	end := f.taken + n
	for len(f.buffer) < end {
		if len(f.buffer) == cap(f.buffer) && !f.grow() {
			return nil, refusedBounds
		}
		got, err := f.source.Read(f.buffer[len(f.buffer):cap(f.buffer)])
		f.buffer = f.buffer[:len(f.buffer)+got]
		if err != nil && len(f.buffer) < end {
			return nil, refusedCut
		}
	}
	f.taken = end
	return f.buffer[end-n : end], ""
}

// grow doubles the buffer, up to the most.
func (f *frame) grow() bool {
	room := min(max(firstFrameRoom, 2*cap(f.buffer)), f.most)
	if !f.keep(room - cap(f.buffer)) {
		return false
	}
	f.buffer = append(make([]byte, 0, room), f.buffer...)
	return true
}

// takeMessage takes an unencrypted message: its type and a map, and after the map of a list of members one map
// for each member. Anything else is refused before memory is allocated for it.
func (f *frame) takeMessage() refusal {
	head, why := f.take(1)
	switch {
	case why != "":
		return why
	case head[0] == encryptedType:
		return refusedKey // the sender has a key, and this node has none
	case head[0] != pushPullType:
		return f.takeMap()
	}
	begin := f.taken
	if why := f.takeMap(); why != "" {
		return why
	}
	members, ok := decodeExchangeHeader(codec.NewDecoderBytes(f.buffer[begin:f.taken], &codec.MsgpackHandle{}))
	if !ok {
		return refusedContent
	}
	for range members {
		if why := f.takeMap(); why != "" {
			return why
		}
	}
	return ""
}

// takeMap takes a msgpack map of up to 15 keys and scalar values.
func (f *frame) takeMap() refusal {
	head, why := f.take(1)
	if why != "" {
		return why
	}
	if head[0]&0xf0 != 0x80 {
		return refusedContent
	}
	for range 2 * int(head[0]&0x0f) {
		if _, why := f.takeScalar(); why != "" {
			return why
		}
	}
	return ""
}

// takeScalar takes a msgpack value that is neither a container nor an extension. It returns the bytes of a text
// or a number, valid until the next call.
func (f *frame) takeScalar() ([]byte, refusal) {
	head, why := f.take(1)
	if why != "" {
		return nil, why
	}
	size, lengthSize, ok := sizeOfScalar(head[0])
	if !ok {
		return nil, refusedContent
	}
	if lengthSize > 0 {
		text, why := f.take(lengthSize)
		if why != "" {
			return nil, why
		}
		var length [8]byte
		copy(length[8-lengthSize:], text)
		size = int(min(binary.BigEndian.Uint64(length[:]), maxStream+1)) // too long for any message
	}
	return f.take(size)
}

// sizeOfScalar returns how many bytes follow the first one of a msgpack value, or how many bytes the length of
// these has; false: the value is not a scalar.
func sizeOfScalar(first byte) (size, lengthSize int, ok bool) {
	switch {
	case first <= 0x7f, first >= 0xe0: // small numbers
		return 0, 0, true
	case first >= 0xa0 && first <= 0xbf: // short texts
		return int(first & 0x1f), 0, true
	}
	switch first {
	case 0xc0, 0xc2, 0xc3: // nil, false, true
		return 0, 0, true
	case 0xcc, 0xd0: // numbers of 1, 2, 4 and 8 bytes
		return 1, 0, true
	case 0xcd, 0xd1:
		return 2, 0, true
	case 0xce, 0xd2:
		return 4, 0, true
	case 0xcf, 0xd3:
		return 8, 0, true
	case 0xc4, 0xd9: // bytes and texts
		return 0, 1, true
	case 0xc5, 0xda:
		return 0, 2, true
	case 0xc6, 0xdb:
		return 0, 4, true
	}
	return 0, 0, false
}

// compressedHeader precedes the compressed bytes of a message: memberlist knows one algorithm, 0.
const compressedHeader = "\x82\xa4Algo\x00\xa3Buf"

// openCompressed opens the message in a compressed one, without the type of that; false: no node sends it.
func openCompressed(text []byte) (io.Reader, bool) {
	text, ok := bytes.CutPrefix(text, []byte(compressedHeader))
	if !ok {
		return nil, false
	}
	compressed, why := frameOf(text).takeScalar()
	return lzw.NewReader(bytes.NewReader(compressed), lzw.LSB, 8), why == ""
}

// decompressPacket returns the packet in a compressed one, if it is as short as a packet that is not compressed.
func decompressPacket(text []byte) ([]byte, refusal) {
	source, ok := openCompressed(text)
	if !ok {
		return nil, refusedContent
	}
	packet, err := io.ReadAll(io.LimitReader(source, maxPacket+1))
	switch {
	case len(packet) > maxPacket:
		return nil, refusedSize
	case err != nil:
		return nil, refusedContent
	}
	return packet, ""
}

// decompressMessage returns the message of a stream in a compressed one. It ends at the first byte that no node
// sends, and at the bounds of a message that is not compressed. The 20 KiB of the decompressor are not reserved:
// it never waits, so that few run at once.
func decompressMessage(text []byte, keep func(int) bool) ([]byte, refusal) {
	source, ok := openCompressed(text)
	if !ok {
		return nil, refusedContent
	}
	f := frame{source: source, keep: keep, most: maxStream}
	why := f.takeMessage()
	switch {
	case why == refusedCut, why == "" && !f.isAtEnd():
		return nil, refusedContent
	case why != "":
		return nil, why
	}
	return f.message(), ""
}

// isAtEnd reports whether nothing follows the message.
func (f *frame) isAtEnd() bool {
	n, err := f.source.Read(make([]byte, 1))
	return len(f.buffer) == f.taken && n == 0 && err == io.EOF
}

// readPlain reads one unencrypted message of a stream and validates it. It returns a compressed one decompressed. It
// calls keep before it allocates memory.
func readPlain(r io.Reader, mostIncarnation uint32, keep func(int) bool, validate validator) ([]byte, refusal) {
	f := frame{source: r, keep: keep, most: maxStream}
	why := f.takeMessage()
	message := f.message()
	if why == "" && message[0] == compressedType {
		message, why = decompressMessage(message[1:], keep)
	}
	if why != "" {
		return nil, why
	}
	return message, validate(message, mostIncarnation)
}
