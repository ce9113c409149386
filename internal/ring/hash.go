package ring

import "math/bits"

// Constants of FNV-1a (64 bit) and of splitmix64.
const (
	fnvOffset   = 14695981039346656037
	fnvPrime    = 1099511628211
	goldenGamma = 0x9e3779b97f4a7c15
)

// fold continues an FNV-1a hash over s.
func fold(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}

// mix is the output function of splitmix64. FNV alone leaves names that differ
// in their last letter too much alike.
func mix(x uint64) uint64 {
	x += goldenGamma
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// ShardOf is the shard of a job, 0 to shards-1. Fewer than two shards leave only
// shard 0.
func ShardOf(namespace, id string, shards int) int {
	if shards < 2 {
		return 0
	}
	// The zero byte keeps ("a", "bc") and ("ab", "c") apart.
	h := fold(fold(fnvOffset, namespace)*fnvPrime, id)
	shard, _ := bits.Mul64(mix(h), uint64(shards))
	return int(shard)
}

// weight of a member for a shard, from the hash of the member's name.
func weight(name uint64, shard int) uint64 {
	return mix(name + mix(uint64(shard)))
}

func nameHash(name string) uint64 { return mix(fold(fnvOffset, name)) }
