// Package record keeps what the handlers of a benchmark saw: which jobs ran, how
// often, and how far from their due time they started.
package record

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// head is the length of what a payload must hold: class, index, due time.
const head = 1 + 10 + 19

// Class distinguishes groups of jobs in a measurement: 0 to 25.
type Class uint8

// Payload makes the input of the i-th job of a class: the job's name and its due time in nanoseconds (zero:
// unknown), padded to size bytes, at least 30.
func Payload(c Class, i int, due time.Time, size int) []byte {
	nanos := int64(0)
	if !due.IsZero() {
		nanos = due.UnixNano()
	}
	b := make([]byte, max(size, head))
	copy(b, fmt.Sprintf("%c%010d%019d", 'a'+rune(c), i, nanos))
	for i := head; i < len(b); i++ {
		b[i] = byte('a' + i%26)
	}
	return b
}

// ID is the id of the i-th job of a class, of 24 bytes.
func ID(c Class, i int) string { return fmt.Sprintf("%c-%022d", 'a'+rune(c), i) }

var errPayload = errors.New("the payload is not one of this benchmark")

// parse reads what Payload wrote.
func parse(b []byte) (c Class, i int, due time.Time, err error) {
	if len(b) < head || b[0] < 'a' || b[0] > 'z' {
		return 0, 0, due, errPayload
	}
	i, err = strconv.Atoi(string(b[1:11]))
	if err != nil {
		return 0, 0, due, errPayload
	}
	nanos, err := strconv.ParseInt(string(b[11:head]), 10, 64)
	if err != nil {
		return 0, 0, due, errPayload
	}
	if nanos != 0 {
		due = time.Unix(0, nanos)
	}
	return Class(b[0] - 'a'), i, due, nil
}
