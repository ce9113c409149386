package scheduler

// ranked is what a heap orders. It remembers its own place, so that it can be
// taken out or moved from the middle; it sits in one heap at a time.
type ranked[T any] interface {
	comparable
	before(T) bool
	// place is the position in the heap plus one, 0 outside of it.
	place() *int
}

// heap is a binary heap with the least on top.
type heap[T ranked[T]] []T

func (h heap[T]) top() T { return h[0] }

func (h *heap[T]) push(x T) {
	*h = append(*h, x)
	*x.place() = len(*h)
	h.up(len(*h) - 1)
}

func (h *heap[T]) remove(x T) {
	i, last := *x.place()-1, len(*h)-1
	moved := (*h)[last]
	h.set(i, moved)
	var none T
	(*h)[last] = none
	*h = (*h)[:last]
	*x.place() = 0
	if moved != x {
		h.fix(moved)
	}
}

// fix restores the order after x changed.
func (h heap[T]) fix(x T) { h.down(h.up(*x.place() - 1)) }

func (h heap[T]) set(i int, x T) {
	h[i] = x
	*x.place() = i + 1
}

func (h heap[T]) up(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].before(h[parent]) {
			break
		}
		h.swap(i, parent)
		i = parent
	}
	return i
}

func (h heap[T]) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			return
		}
		h.swap(i, child)
		i = child
	}
}

func (h heap[T]) swap(i, j int) {
	a, b := h[i], h[j]
	h.set(i, b)
	h.set(j, a)
}
