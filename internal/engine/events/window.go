package events

import "github.com/fermata-io/fermata/internal/core/job"

// window has the newest events of a shard that were read, without gaps.
type window struct {
	events []job.Event // newest last; never modified
	bytes  int         // of memory
}

// add appends events. If there are too many, or they take more memory than may be, the oldest ones go.
func (w *window) add(events []job.Event, most int) {
	w.events, w.bytes = append(w.events, events...), w.bytes+memorySize(events)
	if len(w.events) <= 2*windowSize && w.bytes <= most {
		return
	}
	all, from := w.events, len(w.events)
	w.bytes = 0
	for from > 0 && len(all)-from < windowSize {
		n := all[from-1].MemorySize()
		if w.bytes+n > most/2 {
			break
		}
		from, w.bytes = from-1, w.bytes+n
	}
	w.events = append([]job.Event(nil), all[from:]...)
}

func memorySize(events []job.Event) int {
	n := 0
	for i := range events {
		n += events[i].MemorySize()
	}
	return n
}
