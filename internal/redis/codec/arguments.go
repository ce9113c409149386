package codec

import (
	"github.com/fermata-io/fermata/internal/core/job"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// Argument is an argument of a command, in memory that it shares with other arguments. Pass a
// pointer to the client: a string would be copied to the heap once more.
type Argument []byte

// MarshalBinary implements [encoding.BinaryMarshaler].
func (p *Argument) MarshalBinary() ([]byte, error) { return *p, nil }

// Sizes of an [ArgumentBuffer].
const (
	bytesPerItem   = 256 // about what the arguments of one item take
	maxBufferBytes = 64 << 10
)

// ArgumentBuffer is the memory that the arguments of one call share. It saves the allocation of a
// guard, a state, a history field and a run for each record that is settled (BenchmarkArguments).
type ArgumentBuffer struct {
	Encoding Encoding
	// Free is the current chunk: its length is used, its capacity is free.
	Free []byte
	run  storagev1.Run // reused for each run
}

// Reserve makes room for the next item. A new buffer has room for the given number of further items, too. An item that
// needs more room gets it when it is appended.
func (s *ArgumentBuffer) Reserve(items int) *ArgumentBuffer {
	if cap(s.Free)-len(s.Free) < 2*bytesPerItem {
		s.Free = make([]byte, 0, min(bytesPerItem*(items+1), maxBufferBytes))
	}
	return s
}

// bytesSince is what was appended after start. Later appends do not overwrite it.
func (s *ArgumentBuffer) bytesSince(start int) Argument {
	return Argument(s.Free[start:len(s.Free):len(s.Free)])
}

// AppendGuard appends the guard of a write: see [GuardPattern].
func (s *ArgumentBuffer) AppendGuard(w *job.Write) Argument {
	start := len(s.Free)
	s.Free = AppendGuardPattern(s.Free, w.Token, w.Revision)
	return s.bytesSince(start)
}

// AppendState appends the state of a job that keeps up to history ended runs.
func (s *ArgumentBuffer) AppendState(of *job.State, history int) (p Argument, err error) {
	start := len(s.Free)
	s.Free, err = s.Encoding.ForStates(history).AppendState(s.Free, of)
	return s.bytesSince(start), err
}

// AppendRun appends an ended run.
func (s *ArgumentBuffer) AppendRun(r *job.Run) (p Argument, err error) {
	start := len(s.Free)
	s.Free, err = appendRun(s.Free, &s.run, r)
	return s.bytesSince(start), err
}

// AppendHistoryField appends the name of a history slot.
func (s *ArgumentBuffer) AppendHistoryField(record job.RecordID, slot int) Argument {
	start := len(s.Free)
	s.Free = AppendHistoryField(s.Free, record, slot)
	return s.bytesSince(start)
}
