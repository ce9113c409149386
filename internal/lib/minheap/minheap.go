// Package minheap is a binary heap whose items store their position, so that any of them can be
// moved or removed.
//
// Invariant: if an item changes while it is in a heap, Fix is called for it before another
// item changes.
package minheap

// Item is an item of a heap. It is in one heap at a time.
type Item[T any] interface {
	comparable
	// Before reports whether it is closer to the top.
	Before(T) bool
	// Place is the item's position in the heap plus one, 0 outside of it.
	Place() *int
}

// Heap has the least item on top. The zero value is empty; its length is the number of
// items, and its elements may be read in no particular order.
type Heap[T Item[T]] []T

// Top returns the least item of a heap that is not empty.
func (h Heap[T]) Top() T { return h[0] }

// Push adds an item that is in no heap.
func (h *Heap[T]) Push(x T) {
	*h = append(*h, x)
	*x.Place() = len(*h)
	h.siftUp(len(*h) - 1)
}

// Remove removes an item of this heap.
func (h *Heap[T]) Remove(x T) {
	i, last := *x.Place()-1, len(*h)-1
	moved := (*h)[last]
	h.setAt(i, moved)
	var none T
	(*h)[last] = none
	*h = (*h)[:last]
	*x.Place() = 0
	if moved != x {
		h.Fix(moved)
	}
}

// Fix restores the order after x, which is in this heap, has changed.
func (h Heap[T]) Fix(x T) { h.siftDown(h.siftUp(*x.Place() - 1)) }

func (h Heap[T]) setAt(i int, x T) {
	h[i] = x
	*x.Place() = i + 1
}

func (h Heap[T]) siftUp(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].Before(h[parent]) {
			break
		}
		h.swapItems(i, parent)
		i = parent
	}
	return i
}

func (h Heap[T]) siftDown(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].Before(h[child]) {
			child++
		}
		if !h[child].Before(h[i]) {
			return
		}
		h.swapItems(i, child)
		i = child
	}
}

func (h Heap[T]) swapItems(i, j int) {
	a, b := h[i], h[j]
	h.setAt(i, b)
	h.setAt(j, a)
}
