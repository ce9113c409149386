package codec

// ChunkAllocator allocates values in chunks of four. It saves three of four allocations of a
// decoded record and of its definition (BenchmarkChunks). A chunk is small, because each value
// keeps the whole chunk alive.
type ChunkAllocator[T any] struct{ free []T }

// valuesPerChunk is how many values are allocated together.
const valuesPerChunk = 4

// Next returns a zero value. remaining is how many are needed, including this one.
func (c *ChunkAllocator[T]) Next(remaining int) *T {
	if len(c.free) == 0 {
		c.free = make([]T, max(1, min(remaining, valuesPerChunk)))
	}
	v := &c.free[0]
	c.free = c.free[1:]
	return v
}
