package job

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// tokenVersion begins a resume token: version (1 byte) | shards | for each shard the
// distance of its instant from that of the shard before, and its number | CRC-32 of all
// of that (4 bytes). Numbers are varints.
const tokenVersion = 1

const maxTokenShards = 4096

// EncodePlaces makes a resume token of the place in each shard.
func EncodePlaces(places []Place) string {
	b := make([]byte, 0, 8*len(places)+16)
	b = append(b, tokenVersion)
	b = binary.AppendUvarint(b, uint64(len(places)))
	before := unixtime.Milli(0)
	for _, p := range places {
		b = binary.AppendVarint(b, int64(p.MS-before))
		b = binary.AppendUvarint(b, p.Seq)
		before = p.MS
	}
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

// DecodePlaces is the inverse of EncodePlaces; false for other texts.
func DecodePlaces(token string) ([]Place, bool) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) < 6 || b[0] != tokenVersion {
		return nil, false
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.ChecksumIEEE(body) != sum {
		return nil, false
	}
	rest := body[1:]
	count, n := binary.Uvarint(rest)
	if n <= 0 || count == 0 || count > maxTokenShards {
		return nil, false
	}
	rest = rest[n:]
	places := make([]Place, count)
	before := unixtime.Milli(0)
	for i := range places {
		distance, n := binary.Varint(rest)
		if n <= 0 {
			return nil, false
		}
		rest = rest[n:]
		seq, n := binary.Uvarint(rest)
		if n <= 0 {
			return nil, false
		}
		rest = rest[n:]
		before += unixtime.Milli(distance)
		places[i] = Place{MS: before, Seq: seq}
		if before < 0 {
			return nil, false
		}
	}
	return places, len(rest) == 0
}
