package job

import (
	"encoding/binary"
	"maps"
	"regexp"
	"slices"
)

// SealOverhead is how many bytes sealing adds to a payload.
const SealOverhead = 29

// Versions of a sealed payload: its first byte.
const (
	// SealOfJob is bound to namespace, id and key id.
	SealOfJob = 1
	// SealOfWork is bound to the key id and to [Definition.AppendBound].
	SealOfWork = 2
)

// keyIDPattern is what ids of keys that seal payloads look like.
var keyIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$`)

// ValidateKeyID checks the id of a key that seals payloads; "" is that of none. It returns "" for a good one.
func ValidateKeyID(id string) string {
	if id != "" && !keyIDPattern.MatchString(id) {
		return "must have 1 to 32 letters, digits and any of . _ -, and begin with a letter or digit"
	}
	return ""
}

// SealVersion returns the version of the sealed payload; 0: the payload is as it was given.
func (d *Definition) SealVersion() int {
	if d.PayloadKey == "" || len(d.Payload) == 0 {
		return 0
	}
	return int(d.Payload[0])
}

// PayloadSize returns the size of the payload as it was given, sealed or not.
func (d *Definition) PayloadSize() int {
	if d.PayloadKey == "" {
		return len(d.Payload)
	}
	return max(0, len(d.Payload)-SealOverhead)
}

// AppendBound appends the data that a payload of [SealOfWork] is bound to: the name of the job, its queue, which
// decides which workers get it, and all other fields of the definition that a worker receives with it.
// Definitions that differ in any of these have different bytes.
func (d *Definition) AppendBound(b []byte) []byte {
	for _, text := range [...]string{d.Namespace, d.ID, d.Queue, d.Handler} {
		b = appendWithLength(b, text)
	}
	b = binary.AppendVarint(b, d.Timeout.Milliseconds())
	b = binary.AppendVarint(b, int64(d.Retry.MaxAttempts))
	b = binary.AppendUvarint(b, uint64(len(d.Labels)))
	if len(d.Labels) == 0 {
		return b
	}
	for _, k := range slices.Sorted(maps.Keys(d.Labels)) {
		b = appendWithLength(appendWithLength(b, k), d.Labels[k])
	}
	return b
}

// EqualBoundData reports whether [Definition.AppendBound] is the same for both.
func (d *Definition) EqualBoundData(o *Definition) bool {
	return d.Key == o.Key && d.Queue == o.Queue && d.Handler == o.Handler &&
		d.Timeout.Milliseconds() == o.Timeout.Milliseconds() &&
		d.Retry.MaxAttempts == o.Retry.MaxAttempts && maps.Equal(d.Labels, o.Labels)
}

func appendWithLength(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}
