package schedule

import (
	"slices"
	"time"
)

// Kind says which rule a Spec follows.
type Kind uint8

const (
	KindNone     Kind = iota // runs on request only
	KindOnce                 // one instant
	KindInterval             // every so often, in elapsed time
	KindCron                 // calendar expressions in a time zone
)

// String returns "none", "once", "interval", "cron", or "invalid".
func (k Kind) String() string {
	return name(int(k), "none", "once", "interval", "cron")
}

// DSTPolicy says what a cron expression does where the zone's clock jumps.
// The package comment has the exact rules.
type DSTPolicy uint8

const (
	DSTVixie DSTPolicy = iota // gap: once, right after it; repeat: first pass only
	DSTSkip                   // gap: not at all; repeat: first pass only
	DSTBoth                   // gap: once, right after it; repeat: both passes
	DSTUTC                    // fields are read in UTC; TimeZone must be empty or "UTC"
)

// String returns "vixie", "skip", "both", "utc", or "invalid".
func (p DSTPolicy) String() string {
	return name(int(p), "vixie", "skip", "both", "utc")
}

func name(i int, names ...string) string {
	if i >= len(names) {
		return "invalid"
	}
	return names[i]
}

// Spec is a schedule as stored and sent. Fields of another kind must be zero.
// Instants are used with millisecond precision (truncated).
type Spec struct {
	Kind Kind

	// At is the instant of KindOnce. It may lie in the past.
	At time.Time

	// Every is the period of KindInterval: a whole number of milliseconds, at least 1.
	Every time.Duration
	// FixedDelay counts Every from the completion of a run instead of keeping
	// the phase of StartAt or the anchor. KindInterval only.
	FixedDelay bool

	// Cron holds 1 to 16 expressions of at most 256 bytes for KindCron; the
	// schedule is their union.
	Cron []string
	// TimeZone is the IANA name of the zone Cron is read in. Empty means UTC.
	TimeZone string
	// Seconds says that Cron has a leading seconds field.
	Seconds bool
	// DST is the policy for jumps of the zone's clock. Default DSTVixie.
	DST DSTPolicy

	// StartAt (inclusive) and EndAt (exclusive) bound the nominal times; zero
	// means unbounded. StartAt is also the phase of an interval.
	StartAt, EndAt time.Time
}

// Equal reports whether s and o are the same rule as written. Instants are
// compared as instants; a nil and an empty Cron are equal.
func (s Spec) Equal(o Spec) bool {
	return s.Kind == o.Kind &&
		s.At.Equal(o.At) &&
		s.Every == o.Every &&
		s.FixedDelay == o.FixedDelay &&
		slices.Equal(s.Cron, o.Cron) &&
		s.TimeZone == o.TimeZone &&
		s.Seconds == o.Seconds &&
		s.DST == o.DST &&
		s.StartAt.Equal(o.StartAt) &&
		s.EndAt.Equal(o.EndAt)
}
