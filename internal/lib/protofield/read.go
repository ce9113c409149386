package protofield

import (
	"errors"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// errText is the error of a text field that is not UTF-8.
var errText = errors.New("text is not UTF-8")

// Field is one field of an encoded message. The kind of the field determines which of the two values is set.
// Fields of other kinds have neither.
type Field struct {
	Number protowire.Number
	Bytes  []byte // of the message that is read
	Int    uint64
}

// Fields decodes a message field by field. handle receives each field with all its bytes, and must not keep
// them.
func Fields(data []byte, handle func(f Field, raw []byte) error) error {
	for len(data) > 0 {
		number, kind, tag := protowire.ConsumeTag(data)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		f, n := Field{Number: number}, 0
		switch kind {
		case protowire.BytesType:
			f.Bytes, n = protowire.ConsumeBytes(data[tag:])
		case protowire.VarintType:
			f.Int, n = protowire.ConsumeVarint(data[tag:])
		default:
			n = protowire.ConsumeFieldValue(number, kind, data[tag:])
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := handle(f, data[:tag+n]); err != nil {
			return err
		}
		data = data[tag+n:]
	}
	return nil
}

// Text is the value of a text field.
func (f Field) Text() (string, error) { return f.TextLike("") }

// TextLike is Text for a value that often equals last; it then shares its memory.
func (f Field) TextLike(last string) (string, error) {
	if last != "" && string(f.Bytes) == last {
		return last, nil
	}
	if !utf8.Valid(f.Bytes) {
		return "", errText
	}
	return string(f.Bytes), nil
}

// Time is the value of a google.protobuf.Timestamp.
func (f Field) Time() (time.Time, error) {
	seconds, nanos, err := f.seconds()
	t := timestamppb.Timestamp{Seconds: seconds, Nanos: nanos}
	return t.AsTime(), err
}

// Duration is the value of a google.protobuf.Duration, limited to the longest duration.
func (f Field) Duration() (time.Duration, error) {
	seconds, nanos, err := f.seconds()
	d := durationpb.Duration{Seconds: seconds, Nanos: nanos}
	return d.AsDuration(), err
}

func (f Field) seconds() (seconds int64, nanos int32, err error) {
	err = Fields(f.Bytes, func(f Field, _ []byte) error {
		switch f.Number {
		case 1:
			seconds = int64(f.Int)
		case 2:
			nanos = int32(f.Int)
		}
		return nil
	})
	return seconds, nanos, err
}
