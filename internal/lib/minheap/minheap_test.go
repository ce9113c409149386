package minheap

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type item struct {
	due int64
	pos int
}

func (i *item) Before(other *item) bool { return i.due < other.due }
func (i *item) Place() *int             { return &i.pos }

func TestHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h Heap[*item]
		var all []*item
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			due := rapid.Int64Range(0, 20).Draw(t, "due")
			switch i := rapid.IntRange(0, 3).Draw(t, "step"); {
			case i == 0 || len(all) == 0:
				all = append(all, &item{due: due})
				h.Push(all[len(all)-1])
			case i == 1:
				at := rapid.IntRange(0, len(all)-1).Draw(t, "at")
				h.Remove(all[at])
				if all[at].pos != 0 {
					t.Fatal("a removed item believes that it is in the heap")
				}
				all = slices.Delete(all, at, at+1)
			default:
				at := rapid.IntRange(0, len(all)-1).Draw(t, "at")
				all[at].due = due
				h.Fix(all[at])
			}
			if len(h) != len(all) {
				t.Fatalf("%d items, want %d", len(h), len(all))
			}
			for i, l := range h {
				if l.pos != i+1 {
					t.Fatalf("item %d believes to be at %d", i, l.pos-1)
				}
				if l.due < h.Top().due {
					t.Fatalf("top is %d, but there is %d", h.Top().due, l.due)
				}
			}
		}
	})
}
