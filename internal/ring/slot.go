package ring

import "strconv"

// Slots is the number of hash slots of a Redis Cluster.
const Slots = 16384

// maxSuffix bounds the search for a tag's suffix.
const maxSuffix = 4000

// Tag is the Redis hash tag of a shard, "shard.k". k is chosen so that the tag's
// slot is nearest the middle of the shard's share of all slots: a Cluster that
// splits its slots evenly then holds an even number of shards on each primary,
// where plain numbers would be up to 1.3 times uneven.
func Tag(shard, shards int) string {
	middle := (2*shard + 1) * Slots / (2 * shards)
	best, bestDistance := "", Slots
	prefix := strconv.Itoa(shard) + "."
	for k := range maxSuffix {
		tag := prefix + strconv.Itoa(k)
		distance := int(Slot(tag)) - middle
		if distance < 0 {
			distance = -distance
		}
		if distance < bestDistance {
			best, bestDistance = tag, distance
			if distance == 0 {
				break
			}
		}
	}
	return best
}

// Tags returns the tags of all shards.
func Tags(shards int) []string {
	tags := make([]string, shards)
	for shard := range tags {
		tags[shard] = Tag(shard, shards)
	}
	return tags
}

// Slot is the hash slot of a tag: CRC16 (XMODEM) mod 16384.
func Slot(tag string) uint16 {
	return crc16(tag) % Slots
}

func crc16(s string) uint16 {
	var crc uint16
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
