package sharding

import "math/bits"

// Constants of FNV-1a (64 bit) and of splitmix64.
const (
	fnvOffset   = 14695981039346656037
	fnvPrime    = 1099511628211
	goldenGamma = 0x9e3779b97f4a7c15
)

// foldFNV continues an FNV-1a hash over s.
func foldFNV(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}

// mixBits is the output function of splitmix64. FNV alone leaves names that differ
// in their last letter too much alike.
func mixBits(x uint64) uint64 {
	x += goldenGamma
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// ShardOf returns the shard of a job, 0 to shards-1. Fewer than two shards leave only
// shard 0.
func ShardOf(namespace, id string, shards int) int {
	if shards < 2 {
		return 0
	}
	// The zero byte keeps ("a", "bc") and ("ab", "c") apart.
	h := foldFNV(foldFNV(fnvOffset, namespace)*fnvPrime, id)
	shard, _ := bits.Mul64(mixBits(h), uint64(shards))
	return int(shard)
}

// idLetters are the letters of generated ids: base 32 as in crypto/rand.Text, in lower case.
const idLetters = "abcdefghijklmnopqrstuvwxyz234567"

// IDInShard appends three letters to the beginning of an id, so that its job falls into the shard. It tries as
// many endings as there are shards, on average, at about 5 ns each. It is false if none of the 32,768 endings
// fits, which with 256 shards never happens; then another beginning helps.
func IDInShard(namespace, beginning string, shard, shards int) (id string, ok bool) {
	id = beginning + "aaa"
	if shards < 2 {
		return id, true
	}
	h := foldFNV(foldFNV(fnvOffset, namespace)*fnvPrime, beginning)
	for i := range len(idLetters) {
		hi := (h ^ uint64(idLetters[i])) * fnvPrime
		for j := range len(idLetters) {
			hj := (hi ^ uint64(idLetters[j])) * fnvPrime
			for k := range len(idLetters) {
				hk := (hj ^ uint64(idLetters[k])) * fnvPrime
				if got, _ := bits.Mul64(mixBits(hk), uint64(shards)); int(got) == shard {
					return beginning + string([]byte{idLetters[i], idLetters[j], idLetters[k]}), true
				}
			}
		}
	}
	return id, false
}

// memberWeight returns the weight of a member for a shard, from the hash of the member's name.
func memberWeight(name uint64, shard int) uint64 {
	return mixBits(name + mixBits(uint64(shard)))
}

func nameHash(name string) uint64 { return mixBits(foldFNV(fnvOffset, name)) }
