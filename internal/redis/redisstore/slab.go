package redisstore

import "github.com/fermata-io/fermata/internal/core/job"

// packed is an argument of a command in memory that it shares with others. The client
// takes a pointer to it, which unlike a text needs no memory of its own.
type packed []byte

// MarshalBinary implements [encoding.BinaryMarshaler].
func (p *packed) MarshalBinary() ([]byte, error) { return *p, nil }

// Sizes of what the items of a call share.
const (
	slabItem = 256 // what one takes, about
	slabSize = 64 << 10
)

// slab is the memory that the texts of a call's items share.
type slab struct {
	form form
	free []byte
}

// ready makes room for the next of so many items. What an item needs beyond it, it gets
// as well.
func (s *slab) ready(items int) *slab {
	if cap(s.free)-len(s.free) < 2*slabItem {
		s.free = make([]byte, 0, min(slabItem*(items+1), slabSize))
	}
	return s
}

// since is what was written behind a place.
func (s *slab) since(start int) packed { return packed(s.free[start:len(s.free):len(s.free)]) }

func (s *slab) guard(w *job.Write) packed {
	start := len(s.free)
	s.free = appendGuard(s.free, w.Token, w.Revision)
	return s.since(start)
}

// state writes the state of a job that keeps so many ended runs.
func (s *slab) state(of *job.State, history int) (p packed, err error) {
	start := len(s.free)
	s.free, err = s.form.ofStates(history).appendState(s.free, of)
	return s.since(start), err
}

func (s *slab) run(r *job.Run) (p packed, err error) {
	start := len(s.free)
	s.free, err = appendRun(s.free, r)
	return s.since(start), err
}

func (s *slab) field(record job.RecordID, slot int) packed {
	start := len(s.free)
	s.free = appendHistField(s.free, record, slot)
	return s.since(start)
}
