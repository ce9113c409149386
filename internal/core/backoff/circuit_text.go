package backoff

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of a stored circuit, in bytes.
const (
	maxCircuitBy    = 128
	maxCircuitError = 256
	maxCircuitText  = 8 << 10
)

// Encode returns the text to store, at most 3 KiB and the holder; "" for a closed
// circuit.
func (c Circuit) Encode() string {
	if !c.Open() {
		return ""
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // of numbers and strings there is none
	}
	return string(text)
}

// ParseCircuit parses the output of Encode; "" is the closed circuit. Unknown fields are skipped.
func ParseCircuit(text string) (Circuit, error) {
	if text == "" {
		return Circuit{}, nil
	}
	if len(text) > maxCircuitText {
		return Circuit{}, fmt.Errorf("circuit: %d bytes, at most %d", len(text), maxCircuitText)
	}
	var c Circuit
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return Circuit{}, fmt.Errorf("circuit: %w", err)
	}
	for _, n := range []int64{c.Failures, int64(c.SinceMS), int64(c.OpenUntilMS), int64(c.ProbeUntilMS)} {
		if n < 0 || n > maxInstant {
			return Circuit{}, fmt.Errorf("circuit: %d is out of range", n)
		}
	}
	if !c.Open() {
		return Circuit{}, nil
	}
	if c.Probe == "" {
		c.ProbeUntilMS = 0
	}
	return c.withFailure(c.FailedJob, c.Error), nil
}

// clipText makes text valid and at most n bytes long.
func clipText(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
