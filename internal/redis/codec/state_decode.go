package codec

import (
	"errors"
	"fmt"
	"math"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// ErrCorrupt marks stored text that this version cannot read.
var ErrCorrupt = errors.New("stored record is corrupt")

// DecodeState decodes the stored state of a record.
func DecodeState(record job.RecordID, text string) (job.State, error) {
	var s job.State
	if err := DecodeStateInto(&s, record, text); err != nil {
		return job.State{}, err
	}
	return s, nil
}

// DecodeStateInto decodes into a zero state, since states are large. After an error the state is
// invalid.
func DecodeStateInto(s *job.State, record job.RecordID, text string) error {
	key := record.Key()
	if key == (job.Key{}) {
		return fmt.Errorf("%w: record id %.64q", ErrCorrupt, record)
	}
	if len(text) >= stateHeaderLen && text[stateHeaderLen-1] > fullTail {
		*s = defaultState
	}
	s.Lane.Namespace = key.Namespace
	if err := decodeHeader(s, text); err != nil {
		return err
	}
	r := tailReader{rest: text[stateHeaderLen:], encoding: Encoding(text[stateHeaderLen-1] - fullTail)}
	return r.readInto(s)
}

func decodeHeader(s *job.State, text string) error {
	if len(text) < stateHeaderLen {
		return fmt.Errorf("%w: state of %d bytes", ErrCorrupt, len(text))
	}
	for i := range stateHeaderLen {
		if text[i] < '0' || text[i] > '9' {
			return fmt.Errorf("%w: header %q", ErrCorrupt, text[:stateHeaderLen])
		}
	}
	revision := parseDigits(text[18:28])
	if text[35] < fullTail || text[35] > compactTail || text[16] > '0'+byte(job.RegionDone) || text[17] > '1' ||
		text[34] > '1' ||
		revision > math.MaxUint32 {
		return fmt.Errorf("%w: header %q", ErrCorrupt, text[:stateHeaderLen])
	}
	s.Token = parseDigits(text[:16])
	s.Region = job.Region(text[16] - '0')
	s.Acked = text[17] == '1'
	s.Revision = uint32(revision)
	s.Epoch = uint32(parseDigits(text[28:34]))
	s.Deleting = text[34] == '1'
	return nil
}

// parseDigits reads decimal digits. The caller has checked that they are digits and fit.
func parseDigits(text string) (n uint64) {
	for i := range len(text) {
		n = n*10 + uint64(text[i]-'0')
	}
	return n
}

// tailReader reads the fields of a tail.
type tailReader struct {
	rest     string
	encoding Encoding
}

// tailField is one field of a tail: a number, or a text.
type tailField struct {
	letter    byte
	magnitude uint64 // its absolute value
	negative  bool
	text      string
	isText    bool
}

func (r *tailReader) nextField() (tailField, error) {
	f := tailField{letter: r.rest[0]}
	if f.letter >= '0' && f.letter <= ':' {
		// A digit or a colon would belong to the previous field.
		return f, fmt.Errorf("%w: field %q is no letter", ErrCorrupt, f.letter)
	}
	if f.letter == 'n' && r.encoding >= EncodingCompact && len(r.rest) > 1 && r.rest[1] >= base64Zero {
		err := r.readBase64(&f)
		return f, err
	}
	i := 1
	if i < len(r.rest) && r.rest[i] == '-' {
		f.negative = true
		i++
	}
	start := i
	for ; i < len(r.rest) && r.rest[i] >= '0' && r.rest[i] <= '9'; i++ {
		digit := uint64(r.rest[i] - '0')
		if f.magnitude > (math.MaxUint64-digit)/10 {
			return f, fmt.Errorf("%w: field %q overflows", ErrCorrupt, f.letter)
		}
		f.magnitude = f.magnitude*10 + digit
	}
	if i == start {
		return f, fmt.Errorf("%w: field %q has no number", ErrCorrupt, f.letter)
	}
	if i == len(r.rest) || r.rest[i] != ':' {
		r.rest = r.rest[i:]
		return f, nil
	}
	f.isText = true
	i++
	if f.negative || f.magnitude > uint64(len(r.rest)-i) {
		return f, fmt.Errorf("%w: field %q is cut off", ErrCorrupt, f.letter)
	}
	end := i + int(f.magnitude)
	f.text, r.rest = r.rest[i:end], r.rest[end:]
	return f, nil
}

// readBase64 reads a nominal time in base 64.
func (r *tailReader) readBase64(f *tailField) error {
	if len(r.rest) <= base64Digits {
		return fmt.Errorf("%w: field %q is cut off", ErrCorrupt, f.letter)
	}
	for i := 1; i <= base64Digits; i++ {
		digit := r.rest[i] - base64Zero // wraps around for smaller characters
		if digit >= 1<<base64Bits {
			return fmt.Errorf("%w: field %q has a digit %q", ErrCorrupt, f.letter, r.rest[i])
		}
		f.magnitude = f.magnitude<<base64Bits | uint64(digit)
	}
	r.rest = r.rest[1+base64Digits:]
	return nil
}

// readInto reads all fields. It keeps fields of a later version unchanged.
func (r *tailReader) readInto(s *job.State) error {
	for len(r.rest) > 0 {
		before := r.rest
		f, err := r.nextField()
		if err == nil {
			err = f.storeIn(s, r.encoding)
		}
		switch {
		case errors.Is(err, errUnknownField):
			s.Unknown += before[:len(before)-len(r.rest)]
		case err != nil:
			return err
		}
	}
	return checkPayloadInfo(s)
}

// intValue returns the number as a signed one.
func (f tailField) intValue() (int64, error) {
	switch {
	case f.isText:
	case f.negative && f.magnitude <= 1<<63:
		return -int64(f.magnitude), nil
	case !f.negative && f.magnitude <= math.MaxInt64:
		return int64(f.magnitude), nil
	}
	return 0, fmt.Errorf("%w: field %q is not a number", ErrCorrupt, f.letter)
}

// timeValue returns the number as a time, or as a distance between times.
func (f tailField) timeValue() (unixtime.Milli, error) {
	n, err := f.intValue()
	return unixtime.Milli(n), err
}

// uintValue returns the number if it is at most limit.
func (f tailField) uintValue(limit uint64) (uint64, error) {
	if f.isText || f.negative || f.magnitude > limit {
		return 0, fmt.Errorf("%w: field %q is out of range", ErrCorrupt, f.letter)
	}
	return f.magnitude, nil
}

// ReadGuard reads token and revision of a state with a sane header, whose tail may be corrupt.
func ReadGuard(state string) (token uint64, revision uint32) {
	return parseDigits(state[:16]), uint32(parseDigits(state[18:28]))
}
