package schedule

import (
	"errors"
	"testing"
	"time"
)

var created = utc("2026-01-01T00:00:00Z")

func utc(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return t.UTC()
}

func compile(t testing.TB, s Spec, anchor time.Time) *Schedule {
	t.Helper()
	c, err := Compile(s, anchor, 7)
	if err != nil {
		t.Fatalf("Compile(%+v): %v", s, err)
	}
	return c
}

// dst is what a schedule does where the clock jumps.
type dst struct {
	gap    GapPolicy
	repeat RepeatPolicy
}

func (p dst) String() string { return p.gap.String() + "/" + p.repeat.String() }

var (
	vixie    = dst{GapShift, RepeatFirst}
	skip     = dst{GapSkip, RepeatFirst}
	last     = dst{GapShift, RepeatLast}
	both     = dst{GapShift, RepeatBoth}
	skipLast = dst{GapSkip, RepeatLast}
	skipBoth = dst{GapSkip, RepeatBoth}

	everyDST = []dst{vixie, skip, last, both, skipLast, skipBoth}
)

func cronIn(zone string, p dst, exprs ...string) Spec {
	return Spec{Kind: KindCron, TimeZone: zone, Gap: p.gap, Repeat: p.repeat, Cron: exprs}
}

// upcoming formats the next n nominal times as a clock in zone shows them.
func upcoming(s *Schedule, zone string, after time.Time, n int) []string {
	loc, err := time.LoadLocation(zone)
	if err != nil {
		panic(err)
	}
	var out []string
	for _, t := range Upcoming(s, after, n, NewBudget(5)) {
		out = append(out, t.In(loc).Format("2006-01-02 15:04:05 -0700"))
	}
	return out
}

// faults returns the fields that err complains of, checking that every part is a *FieldError.
func faults(t testing.TB, err error) []string {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("error %v (%T) is not a join", err, err)
	}
	var out []string
	for _, e := range joined.Unwrap() {
		var f *FieldError
		if !errors.As(e, &f) {
			t.Fatalf("part %v (%T) is not a *FieldError", e, e)
		}
		out = append(out, f.Field)
	}
	return out
}

// excluding is a job every 30 minutes with exclusions in Berlin.
func excluding(e Exclusions) Spec {
	return Spec{Kind: KindInterval, Every: 30 * time.Minute, TimeZone: "Europe/Berlin", Exclude: e}
}
