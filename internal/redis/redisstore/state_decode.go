package redisstore

import (
	"errors"
	"fmt"
	"math"

	"github.com/fermata-io/fermata/internal/core/job"
)

// errCorrupt marks stored text that this version cannot read.
var errCorrupt = errors.New("stored record is corrupt")

// decodeState reads the stored state of a record.
func decodeState(record job.RecordID, text string) (job.State, error) {
	var s job.State
	if err := readState(&s, record, text); err != nil {
		return job.State{}, err
	}
	return s, nil
}

// readState is decodeState into a state that is zero: states are large. With an error
// it is of no use.
func readState(s *job.State, record job.RecordID, text string) error {
	key := record.Key()
	if key == (job.Key{}) {
		return fmt.Errorf("%w: record id %.64q", errCorrupt, record)
	}
	if len(text) >= headerLen && text[headerLen-1] > plainTail {
		*s = usualState
	}
	s.Lane.Namespace = key.Namespace
	if err := decodeHeader(s, text); err != nil {
		return err
	}
	r := tailReader{rest: text[headerLen:], form: form(text[headerLen-1] - plainTail)}
	return r.into(s)
}

func decodeHeader(s *job.State, text string) error {
	if len(text) < headerLen {
		return fmt.Errorf("%w: state of %d bytes", errCorrupt, len(text))
	}
	for i := range headerLen {
		if text[i] < '0' || text[i] > '9' {
			return fmt.Errorf("%w: header %q", errCorrupt, text[:headerLen])
		}
	}
	revision := digits(text[18:28])
	if text[35] < plainTail || text[35] > tightTail || text[16] > '0'+byte(job.RegionDone) || text[17] > '1' || text[34] > '1' ||
		revision > math.MaxUint32 {
		return fmt.Errorf("%w: header %q", errCorrupt, text[:headerLen])
	}
	s.Token = digits(text[:16])
	s.Region = job.Region(text[16] - '0')
	s.Acked = text[17] == '1'
	s.Revision = uint32(revision)
	s.Epoch = uint32(digits(text[28:34]))
	s.Deleting = text[34] == '1'
	return nil
}

// digits reads decimal digits that are known to be such and to fit.
func digits(text string) (n uint64) {
	for i := range len(text) {
		n = n*10 + uint64(text[i]-'0')
	}
	return n
}

// tailReader takes fields off the front of a tail.
type tailReader struct {
	rest string
	form form
}

// field is one field of a tail: a number, or a text.
type field struct {
	letter byte
	num    uint64 // its absolute value
	neg    bool
	text   string
	isText bool
}

func (r *tailReader) next() (field, error) {
	f := field{letter: r.rest[0]}
	if f.letter >= '0' && f.letter <= ':' {
		// A digit or a colon would become part of the field before it.
		return f, fmt.Errorf("%w: field %q is no letter", errCorrupt, f.letter)
	}
	if f.letter == 'n' && r.form >= formTight && len(r.rest) > 1 && r.rest[1] >= zeroOf64 {
		err := r.base64(&f)
		return f, err
	}
	i := 1
	if i < len(r.rest) && r.rest[i] == '-' {
		f.neg = true
		i++
	}
	start := i
	for ; i < len(r.rest) && r.rest[i] >= '0' && r.rest[i] <= '9'; i++ {
		digit := uint64(r.rest[i] - '0')
		if f.num > (math.MaxUint64-digit)/10 {
			return f, fmt.Errorf("%w: field %q overflows", errCorrupt, f.letter)
		}
		f.num = f.num*10 + digit
	}
	if i == start {
		return f, fmt.Errorf("%w: field %q has no number", errCorrupt, f.letter)
	}
	if i == len(r.rest) || r.rest[i] != ':' {
		r.rest = r.rest[i:]
		return f, nil
	}
	f.isText = true
	i++
	if f.neg || f.num > uint64(len(r.rest)-i) {
		return f, fmt.Errorf("%w: field %q is cut off", errCorrupt, f.letter)
	}
	end := i + int(f.num)
	f.text, r.rest = r.rest[i:end], r.rest[end:]
	return f, nil
}

// base64 reads the digits of a nominal time.
func (r *tailReader) base64(f *field) error {
	if len(r.rest) <= digits64 {
		return fmt.Errorf("%w: field %q is cut off", errCorrupt, f.letter)
	}
	for i := 1; i <= digits64; i++ {
		digit := r.rest[i] - zeroOf64 // wraps around for what is less
		if digit >= 1<<bitsOf64 {
			return fmt.Errorf("%w: field %q has a digit %q", errCorrupt, f.letter, r.rest[i])
		}
		f.num = f.num<<bitsOf64 | uint64(digit)
	}
	r.rest = r.rest[1+digits64:]
	return nil
}

// into reads all fields. Those of a later version are kept as they are.
func (r *tailReader) into(s *job.State) error {
	for len(r.rest) > 0 {
		before := r.rest
		f, err := r.next()
		if err == nil {
			err = f.store(s, r.form)
		}
		switch {
		case errors.Is(err, errLater):
			s.Unknown += before[:len(before)-len(r.rest)]
		case err != nil:
			return err
		}
	}
	return nil
}

// int returns the number as a signed one.
func (f field) int() (int64, error) {
	switch {
	case f.isText:
	case f.neg && f.num <= 1<<63:
		return -int64(f.num), nil
	case !f.neg && f.num <= math.MaxInt64:
		return int64(f.num), nil
	}
	return 0, fmt.Errorf("%w: field %q is not a number", errCorrupt, f.letter)
}

// uint returns the number if it is at most limit.
func (f field) uint(limit uint64) (uint64, error) {
	if f.isText || f.neg || f.num > limit {
		return 0, fmt.Errorf("%w: field %q is out of range", errCorrupt, f.letter)
	}
	return f.num, nil
}
