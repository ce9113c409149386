package codec

// ChunkAllocator makes values of which many come at once, a few together: the memory of large ones
// comes cheaper so. It is few, as each keeps the others of its bunch alive.
type ChunkAllocator[T any] struct{ free []T }

// valuesPerChunk is how many values are made together.
const valuesPerChunk = 4

// Next makes the next of so many.
func (c *ChunkAllocator[T]) Next(left int) *T {
	if len(c.free) == 0 {
		c.free = make([]T, max(1, min(left, valuesPerChunk)))
	}
	v := &c.free[0]
	c.free = c.free[1:]
	return v
}
