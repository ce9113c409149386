package codec

import "github.com/fermata-io/fermata/internal/core/job"

// Argument is an argument of a command in memory that it shares with others. The client
// takes a pointer to it, which unlike a text needs no memory of its own.
type Argument []byte

// MarshalBinary implements [encoding.BinaryMarshaler].
func (p *Argument) MarshalBinary() ([]byte, error) { return *p, nil }

// Sizes of what the items of a call share.
const (
	bytesPerItem   = 256 // what one takes, about
	maxBufferBytes = 64 << 10
)

// ArgumentBuffer is the memory that the texts of a call's items share.
type ArgumentBuffer struct {
	Encoding Encoding
	Free     []byte
}

// Reserve makes room for the next of so many items. What an item needs beyond it, it gets
// as well.
func (s *ArgumentBuffer) Reserve(items int) *ArgumentBuffer {
	if cap(s.Free)-len(s.Free) < 2*bytesPerItem {
		s.Free = make([]byte, 0, min(bytesPerItem*(items+1), maxBufferBytes))
	}
	return s
}

// bytesSince is what was written behind a place.
func (s *ArgumentBuffer) bytesSince(start int) Argument {
	return Argument(s.Free[start:len(s.Free):len(s.Free)])
}

func (s *ArgumentBuffer) AppendGuard(w *job.Write) Argument {
	start := len(s.Free)
	s.Free = AppendGuardPattern(s.Free, w.Token, w.Revision)
	return s.bytesSince(start)
}

// AppendState writes the state of a job that keeps so many ended runs.
func (s *ArgumentBuffer) AppendState(of *job.State, history int) (p Argument, err error) {
	start := len(s.Free)
	s.Free, err = s.Encoding.ForStates(history).AppendState(s.Free, of)
	return s.bytesSince(start), err
}

func (s *ArgumentBuffer) AppendRun(r *job.Run) (p Argument, err error) {
	start := len(s.Free)
	s.Free, err = AppendRun(s.Free, r)
	return s.bytesSince(start), err
}

func (s *ArgumentBuffer) AppendHistoryField(record string, slot int) Argument {
	start := len(s.Free)
	s.Free = AppendHistoryField(s.Free, record, slot)
	return s.bytesSince(start)
}
