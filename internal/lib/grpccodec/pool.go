package grpccodec

import (
	"math/bits"
	"sync"
)

// Buffers of 2^11 to 2^20 bytes are pooled: gRPC does not return buffers of 1 KiB or less.
const minSizeBits, maxSizeBits = 11, 20

// pool keeps buffers for messages without clearing them: every used byte is overwritten. gRPC's own pool clears
// each buffer, and has no size between 32 KiB and 1 MiB, the size of batches of leases.
type pool struct {
	sizes [maxSizeBits - minSizeBits + 1]sync.Pool
}

var buffers = &pool{}

// Get returns a buffer of this length with arbitrary content.
func (p *pool) Get(length int) *[]byte {
	exponent := max(minSizeBits, bits.Len(uint(max(length, 1)-1)))
	if exponent > maxSizeBits {
		b := make([]byte, length)
		return &b
	}
	if b, ok := p.sizes[exponent-minSizeBits].Get().(*[]byte); ok {
		*b = (*b)[:length]
		return b
	}
	b := make([]byte, length, 1<<exponent)
	return &b
}

// Put returns a buffer from Get; other buffers are kept if their size fits.
func (p *pool) Put(b *[]byte) {
	size := uint(cap(*b))
	if exponent := bits.TrailingZeros(size); size == 1<<exponent && exponent >= minSizeBits && exponent <= maxSizeBits {
		p.sizes[exponent-minSizeBits].Put(b)
	}
}
