package job

import (
	"cmp"
	"maps"
	"slices"
)

// MaxEventLabels bounds the labels that an event carries: the bytes of their names and values together.
const MaxEventLabels = 1 << 10

// EventLabels returns the labels that an event of a job carries: all of them if they have at most [MaxEventLabels]
// bytes, or else the shortest that fit, in order of length and then of name. Labels that filters select by are short.
func EventLabels(labels map[string]string) map[string]string {
	if labelBytes(labels) <= MaxEventLabels {
		return labels
	}
	names := slices.SortedFunc(maps.Keys(labels), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a)+len(labels[a]), len(b)+len(labels[b])), cmp.Compare(a, b))
	})
	kept, room := map[string]string{}, MaxEventLabels
	for _, name := range names {
		room -= len(name) + len(labels[name])
		if room < 0 {
			break
		}
		kept[name] = labels[name]
	}
	return kept
}

func labelBytes(labels map[string]string) int {
	n := 0
	for name, value := range labels {
		n += len(name) + len(value)
	}
	return n
}

const (
	// eventOverhead is about what an event takes of memory without its texts.
	eventOverhead = 512
	// labelOverhead is the same of one label.
	labelOverhead = 64
)

// MemorySize estimates how many bytes of memory an event takes.
func (h *Event) MemorySize() int {
	return eventOverhead + len(h.Key.Namespace) + len(h.Key.ID) + len(h.Queue) + len(h.RunID) + len(h.Reason) +
		len(h.Error) + len(h.Worker) + len(h.Node) + labelBytes(h.Labels) + labelOverhead*len(h.Labels)
}
