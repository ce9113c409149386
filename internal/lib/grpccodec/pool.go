package grpccodec

import (
	"math/bits"
	"sync"
)

// Buffers of 2^11 to 2^20 bytes are kept: gRPC gives none of 1 KiB or less back.
const smallest, largest = 11, 20

// pool keeps buffers for messages, as they were left: all of a buffer that is used is
// written. gRPC's own pool clears each from end to end, and has nothing between 32 KiB and
// 1 MiB, which is where batches of leases are.
type pool struct {
	sizes [largest - smallest + 1]sync.Pool
}

var buffers = &pool{}

// Get returns a buffer of this length, whose content is anything.
func (p *pool) Get(length int) *[]byte {
	exponent := max(smallest, bits.Len(uint(max(length, 1)-1)))
	if exponent > largest {
		b := make([]byte, length)
		return &b
	}
	if b, ok := p.sizes[exponent-smallest].Get().(*[]byte); ok {
		*b = (*b)[:length]
		return b
	}
	b := make([]byte, length, 1<<exponent)
	return &b
}

// Put takes back what Get returned; of other buffers those whose size fits.
func (p *pool) Put(b *[]byte) {
	size := uint(cap(*b))
	if exponent := bits.TrailingZeros(size); size == 1<<exponent && exponent >= smallest && exponent <= largest {
		p.sizes[exponent-smallest].Put(b)
	}
}
