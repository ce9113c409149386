package protofield

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// AppendText appends a field of text or bytes, if it is not empty.
func AppendText[T string | []byte](b []byte, n protowire.Number, text T) []byte {
	if len(text) == 0 {
		return b
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.BytesType), uint64(len(text)))
	return append(b, text...)
}

// AppendInt appends a field of a number, if it is not zero.
func AppendInt(b []byte, n protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
}

// StartMessage starts a field whose value is appended next. Close ends it and needs the returned position.
func StartMessage(b []byte, n protowire.Number) (opened []byte, at int) {
	b = protowire.AppendTag(b, n, protowire.BytesType)
	return b, len(b)
}

// EndMessage inserts the length before the value that starts at this position.
func EndMessage(b []byte, at int) []byte {
	n := len(b) - at
	size := protowire.SizeVarint(uint64(n))
	for range size {
		b = append(b, 0)
	}
	copy(b[at+size:], b[at:at+n])
	protowire.AppendVarint(b[:at], uint64(n))
	return b
}

// AppendTime appends a google.protobuf.Timestamp.
func AppendTime(b []byte, n protowire.Number, t time.Time) []byte {
	return appendSeconds(b, n, t.Unix(), int64(t.Nanosecond()))
}

// AppendDuration appends a google.protobuf.Duration, also that of zero.
func AppendDuration(b []byte, n protowire.Number, d time.Duration) []byte {
	return appendSeconds(b, n, int64(d/time.Second), int64(d%time.Second))
}

func appendSeconds(b []byte, n protowire.Number, seconds, nanos int64) []byte {
	b, at := StartMessage(b, n)
	return EndMessage(AppendInt(AppendInt(b, 1, seconds), 2, nanos), at)
}
