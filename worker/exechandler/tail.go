package exechandler

import (
	"slices"
	"sync"
	"unicode/utf8"
)

// tailBuffer keeps the last bytes that are written to it, up to a limit. It is safe for concurrent use.
type tailBuffer struct {
	limit int
	mu    sync.Mutex
	kept  []byte
	total int64
}

func (t *tailBuffer) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(b))
	t.kept = append(t.kept, b[max(0, len(b)-t.limit):]...)
	if len(t.kept) > 2*t.limit {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-t.limit:]...)
	}
	return len(b), nil
}

// lastBytes returns the end of what was written and the total number of bytes.
func (t *tailBuffer) lastBytes() ([]byte, int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.kept[max(0, len(t.kept)-t.limit):]), t.total
}

// tailLimit is how many bytes have to be kept: the excerpt, a margin in front of it for masking, and one byte that
// tells [excerptLength] that there is more.
func tailLimit(margin int) int { return MaxExcerpt + margin + 1 }

// excerptLength is how many bytes at the end of a text are shown: at most [MaxExcerpt], from the start of a character.
func excerptLength(text []byte) int {
	from := max(0, len(text)-MaxExcerpt)
	for i := from; from > 0 && i < min(len(text), from+utf8.UTFMax); i++ {
		if utf8.RuneStart(text[i]) {
			return len(text) - i
		}
	}
	return len(text) - from
}
