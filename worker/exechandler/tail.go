package exechandler

import (
	"slices"
	"sync"
)

// tailBuffer keeps the end of what is written to it. It is safe for concurrent use.
type tailBuffer struct {
	mu    sync.Mutex
	kept  []byte
	total int64
}

func (t *tailBuffer) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(b))
	t.kept = append(t.kept, b[max(0, len(b)-MaxExcerpt):]...)
	if len(t.kept) > 2*MaxExcerpt {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-MaxExcerpt:]...)
	}
	return len(b), nil
}

// lastBytes returns the end of what was written, from the start of a character, and the total number of bytes.
func (t *tailBuffer) lastBytes() ([]byte, int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := slices.Clone(t.kept[max(0, len(t.kept)-MaxExcerpt):])
	for i := 0; i < len(b) && i < 4 && t.total > int64(len(b)); i++ {
		if b[i]&0xC0 != 0x80 {
			return b[i:], t.total
		}
	}
	return b, t.total
}
