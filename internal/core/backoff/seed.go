package backoff

import "math/bits"

// Constants of FNV-1a (64 bit) and of splitmix64.
const (
	fnvOffset   = 14695981039346656037
	fnvPrime    = 1099511628211
	goldenGamma = 0x9e3779b97f4a7c15
)

// Seed makes the number that jitter is computed from: FNV-1a of the job's name,
// then run and attempt, each mixed in by the finalizer of splitmix64. It is the
// same on every node and must stay the same in every version, because due times
// already stored and explained depend on it.
func Seed(job string, run int64, attempt int64) uint64 { return SeedOf(run, attempt, job) }

// SeedOf returns [Seed] of the job whose name the parts make, one after the other.
func SeedOf(run int64, attempt int64, name ...string) uint64 {
	h := uint64(fnvOffset)
	for _, part := range name {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * fnvPrime
		}
	}
	h = mixBits(h)
	h = mixBits(h + mixBits(uint64(run)))
	return mixBits(h + mixBits(uint64(attempt)))
}

// mixBits is the output function of splitmix64: a bijection in which each bit of
// the result depends on each bit of the argument.
func mixBits(x uint64) uint64 {
	x += goldenGamma
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// scaleRandom maps a random number to [0, n], evenly.
func scaleRandom(n uint64, random uint64) uint64 {
	if n == ^uint64(0) {
		return random
	}
	hi, _ := bits.Mul64(n+1, random)
	return hi
}
