package node

import (
	"math"
	"testing"
)

func TestDefaultOfUnauthenticatedConnections(t *testing.T) {
	for _, k := range []struct {
		files  uint64
		memory int64
		want   int
	}{
		{1 << 20, math.MaxInt64, 4096},
		{0, math.MaxInt64, 4096},
		{math.MaxUint64, math.MaxInt64, 4096},
		{1024, math.MaxInt64, 256},
		{20, math.MaxInt64, 16},
		{1 << 20, 128 << 20, 512},
		{1 << 20, 1 << 20, 16},
		{1 << 20, 1 << 30, 4096},
	} {
		if n := defaultUnauthenticatedConnections(k.files, k.memory); n != k.want {
			t.Errorf("%d files and %d bytes: %d connections, want %d", k.files, k.memory, n, k.want)
		}
	}
}
