package runner

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Reply is the reply of a script or command. Missing values read as zero.
type Reply []any

// ValueAt is the value at a place; nil if there is none.
func (r Reply) ValueAt(i int) any {
	if i < len(r) {
		return r[i]
	}
	return nil
}

// IntAt is the integer at a place.
func (r Reply) IntAt(i int) int64 {
	n, _ := r.ValueAt(i).(int64)
	return n
}

// TextAt is the text at a place.
func (r Reply) TextAt(i int) string {
	s, _ := r.ValueAt(i).(string)
	return s
}

// HasTextAt reports whether there is a text; a missing field of a hash has none.
func (r Reply) HasTextAt(i int) bool {
	_, ok := r.ValueAt(i).(string)
	return ok
}

// ListAt is the list at a place.
func (r Reply) ListAt(i int) Reply {
	l, _ := r.ValueAt(i).([]any)
	return l
}

// readClock reads the shard's clock and its lag from the reply of a script. It replaces the text in
// the reply by the clock.
func (r Reply) readClock() (us, lagMS int64) {
	clock, lag, lags := strings.Cut(r.TextAt(1), " ")
	if !lags {
		return r.IntAt(1), 0
	}
	us, _ = strconv.ParseInt(clock, 10, 64)
	lagMS, _ = strconv.ParseInt(lag, 10, 64)
	r[1] = us
	return us, lagMS
}

// Texts returns the texts of a list.
func (r Reply) Texts() []string {
	out := make([]string, 0, len(r))
	for i := range r {
		out = append(out, r.TextAt(i))
	}
	return out
}

// RecordIDs returns the texts of a list as ids of records.
func (r Reply) RecordIDs() []job.RecordID {
	out := make([]job.RecordID, 0, len(r))
	for i := range r {
		out = append(out, job.RecordID(r.TextAt(i)))
	}
	return out
}

// Hash reads the reply to HGETALL: a flat list in one protocol, a map in the other.
func (r Reply) Hash() map[string]string {
	out := map[string]string{}
	if pairs, ok := r.ValueAt(0).(map[any]any); ok {
		for field, value := range pairs {
			pair := Reply{field, value}
			out[pair.TextAt(0)] = pair.TextAt(1)
		}
		return out
	}
	for i := 0; i+1 < len(r); i += 2 {
		out[r.TextAt(i)] = r.TextAt(i + 1)
	}
	return out
}

// Pairs returns members with their scores as one list, as RESP2 sends them; RESP3 sends a list of pairs.
func (r Reply) Pairs() Reply {
	if len(r) == 0 || r.ListAt(0) == nil {
		return r
	}
	out := make(Reply, 0, 2*len(r))
	for i := range r {
		out = append(out, r.ListAt(i)...)
	}
	return out
}

// FirstScore is the score of the first member.
func (r Reply) FirstScore() int64 { return r.Pairs().ScoreAt(1) }

// ScoreAt is the score at a place, which the two protocols send as a text and as a number.
func (r Reply) ScoreAt(i int) int64 {
	switch v := r.ValueAt(i).(type) {
	case float64:
		return int64(v)
	case string:
		var f float64
		if _, err := fmt.Sscan(v, &f); err == nil {
			return int64(f)
		}
	}
	return 0
}
