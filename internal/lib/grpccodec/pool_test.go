package grpccodec

import (
	"testing"

	"google.golang.org/grpc/mem"
)

// TestBuffersAreOfTheirLength: also at the bounds of what is kept, and again when they come
// back; what does not fit is not kept.
func TestBuffersAreOfTheirLength(t *testing.T) {
	p := &pool{}
	for _, length := range []int{0, 1, 2047, 2048, 2049, 4096, 1<<20 - 1, 1 << 20, 1<<20 + 1} {
		for range 3 {
			b := p.Get(length)
			if len(*b) != length || length <= 1<<20 && cap(*b) > max(2048, 2*length) {
				t.Errorf("asked for %d: length %d of %d", length, len(*b), cap(*b))
			}
			*b = (*b)[:0]
			p.Put(b)
		}
	}
	if mem.IsBelowBufferPoolingThreshold(cap(*p.Get(1))) {
		t.Error("gRPC does not give the smallest buffers back")
	}
	odd := make([]byte, 0, 3000)
	p.Put(&odd)
	p.Put(new([]byte))
	if b := p.Get(2500); cap(*b) != 4096 {
		t.Errorf("a buffer of %d bytes was kept", cap(*b))
	}
}
