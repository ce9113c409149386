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

// letters are those of ids that are made: base 32 as crypto/rand.Text has it, in lower case.
const letters = "abcdefghijklmnopqrstuvwxyz234567"

// Complete adds three letters to the beginning of an id, so that its job is in the shard
// out of so many. It tries as many endings as there are shards, on the average, at about
// 5 ns each. It is false if none of the 32,768 leads there, which with 256 shards never
// happens; and then another beginning helps.
func Complete(namespace, beginning string, shard, shards int) (id string, ok bool) {
	id = beginning + "aaa"
	if shards < 2 {
		return id, true
	}
	h := fold(fold(fnvOffset, namespace)*fnvPrime, beginning)
	for i := range len(letters) {
		hi := (h ^ uint64(letters[i])) * fnvPrime
		for j := range len(letters) {
			hj := (hi ^ uint64(letters[j])) * fnvPrime
			for k := range len(letters) {
				hk := (hj ^ uint64(letters[k])) * fnvPrime
				if got, _ := bits.Mul64(mix(hk), uint64(shards)); int(got) == shard {
					return beginning + string([]byte{letters[i], letters[j], letters[k]}), true
				}
			}
		}
	}
	return id, false
}

// weight of a member for a shard, from the hash of the member's name.
func weight(name uint64, shard int) uint64 {
	return mix(name + mix(uint64(shard)))
}

func nameHash(name string) uint64 { return mix(fold(fnvOffset, name)) }
