package sharding

import "strconv"

// Slots is the number of Redis Cluster's hash slots.
const Slots = 16384

// tagCandidates is how many tags Tag tries. With that many, one falls within a few slots of any place.
const tagCandidates = 4000

// Slot returns the Redis Cluster slot of a hash tag, given without its braces:
// CRC-16/XMODEM modulo 16384.
func Slot(tag string) uint16 { return crc16(0, tag) % Slots }

// Tag returns the hash tag of a shard's keys, given without braces: "i.k", with the
// k below 4000 whose slot is nearest the middle of the i-th part of all slots,
// cut into as many parts as there are shards. Of equally near ones it is the
// smallest k. Plain numbers as tags would put up to 1.3 times the average on one
// master.
func Tag(shard, shards int) string {
	prefix := strconv.Itoa(shard) + "."
	start := crc16(0, prefix)
	parts := max(shards, 1)
	middle := (2*shard + 1) * Slots // in units of 1/(2*parts) slot
	best, nearest := 0, -1
	var digits [4]byte
	for k := range tagCandidates {
		text := strconv.AppendInt(digits[:0], int64(k), 10)
		distance := 2*parts*int(crc16(start, text)%Slots) - middle
		if distance < 0 {
			distance = -distance
		}
		if nearest < 0 || distance < nearest {
			best, nearest = k, distance
		}
	}
	return prefix + strconv.Itoa(best)
}

// Tags returns the tags of all shards. It takes about 0.1 ms a shard; callers keep
// the result.
func Tags(shards int) []string {
	tags := make([]string, max(shards, 0))
	for shard := range tags {
		tags[shard] = Tag(shard, shards)
	}
	return tags
}

// crc16 continues a CRC-16/XMODEM (polynomial 0x1021, start 0) over s.
func crc16[T string | []byte](crc uint16, s T) uint16 {
	for i := range len(s) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^s[i]]
	}
	return crc
}

var crcTable = makeCRCTable()

func makeCRCTable() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}
