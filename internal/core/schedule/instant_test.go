package schedule

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// odd is an instant between two milliseconds.
func odd(t *rapid.T, label string) time.Time {
	ns := rapid.Int64Range(int64(time.Second), 2_000_000_000*int64(time.Second)).Draw(t, label)
	return time.Unix(0, ns).UTC()
}

func TestInstantsAreRoundedToTheSafeSide(t *testing.T) {
	for _, c := range []struct{ given, up, down string }{
		{"2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z"},
		{"2030-01-01T00:00:00.000000001Z", "2030-01-01T00:00:00.001Z", "2030-01-01T00:00:00Z"},
		{"2030-01-01T00:00:00.000999999Z", "2030-01-01T00:00:00.001Z", "2030-01-01T00:00:00Z"},
		{"2029-12-31T23:59:59.999000001Z", "2030-01-01T00:00:00Z", "2029-12-31T23:59:59.999Z"},
		{"1960-05-01T00:00:00.000000001Z", "1960-05-01T00:00:00.001Z", "1960-05-01T00:00:00Z"},
		{"0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"},
	} {
		if up, down := RoundUp(utc(c.given)), RoundDown(utc(c.given)); up != utc(c.up) || down != utc(c.down) {
			t.Errorf("%s: up %v, down %v, want %s and %s", c.given, up, down, c.up, c.down)
		}
	}
}

// Each nominal time is the exact one, as a clock of nanoseconds has it, rounded up.
func TestNominalTimesAreRoundedUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := odd(t, "start")
		every := time.Duration(rapid.Int64Range(1, 100_000).Draw(t, "every")) * time.Millisecond
		n := rapid.IntRange(0, 20).Draw(t, "n")
		end := start.Add(time.Duration(n)*every + time.Duration(rapid.Int64Range(-2e6, 2e6).Draw(t, "beyond")))
		spec := Spec{Kind: KindInterval, Every: every, StartAt: start}
		anchored := Spec{Kind: KindInterval, Every: every}
		if end.After(RoundUp(start).Add(time.Millisecond)) {
			spec.EndAt = end
		}
		got := Upcoming(compileIn(t, spec, created), start.Add(-time.Hour), 25, NewBudget(5))
		for k, at := range got {
			exact := start.Add(time.Duration(k) * every)
			if at.Before(exact) || at.Sub(exact) >= time.Millisecond {
				t.Errorf("nominal time %d is %v, exactly %v", k, at, exact)
			}
			if !spec.EndAt.IsZero() && !at.Before(spec.EndAt) {
				t.Errorf("%v is not before the end %v", at, spec.EndAt)
			}
		}
		if spec.EndAt.IsZero() && len(got) != 25 {
			t.Errorf("%d nominal times, want 25", len(got))
		}
		if first, _ := compileIn(t, anchored, start).Next(start); first.Before(start.Add(every)) {
			t.Errorf("first at %v, %v after the anchor %v", first, every, start)
		}
	})
}

func TestOnceIsNeverEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := odd(t, "at")
		got, ok := compileIn(t, Spec{Kind: KindOnce, At: at}, created).Next(at.Add(-time.Second))
		if !ok || got.Before(at) || got.Sub(at) >= time.Millisecond {
			t.Errorf("once at %v is due at %v, %t", at, got, ok)
		}
	})
}

// What an excluded period takes out is what lies in it to the nanosecond, and what it puts
// off does not begin before its end.
func TestExcludedPeriodsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := odd(t, "from")
		to := from.Add(time.Duration(rapid.Int64Range(1, 20e6).Draw(t, "length")))
		spec := Spec{Kind: KindInterval, Every: time.Millisecond, StartAt: RoundDown(from).Add(-5 * time.Millisecond)}
		spec.Exclude.Periods = []Period{{From: from, To: to}}
		c := compileIn(t, spec, created)
		next := spec.StartAt.Add(-1)
		for n := spec.StartAt; n.Before(to.Add(5 * time.Millisecond)); n = n.Add(time.Millisecond) {
			if !n.Before(from) && n.Before(to) {
				continue
			}
			if next, _ = c.Next(next); !next.Equal(n) {
				t.Fatalf("nominal time %v, want %v, beside the period from %v to %v", next, n, from, to)
			}
		}
		if clear, ok := c.NextAllowed(RoundUp(from)); !ok || clear.Before(to) && !clear.Equal(RoundUp(from)) {
			t.Errorf("clear at %v, given %v to %v", clear, from, to)
		}
	})
	for _, p := range []Period{{From: utc("2030-01-01T00:00:00.0000007Z"), To: utc("2030-01-01T00:00:00.0000003Z")}} {
		spec := Spec{Kind: KindInterval, Every: time.Second, Exclude: Exclusions{Periods: []Period{p}}}
		if _, err := Compile(spec, created, 7); err == nil {
			t.Errorf("compiled with the period from %v to %v", p.From, p.To)
		}
	}
}

func compileIn(t *rapid.T, s Spec, anchor time.Time) *Schedule {
	c, err := Compile(s, anchor, 7)
	if err != nil {
		t.Fatalf("Compile(%+v): %v", s, err)
	}
	return c
}
