package schedule

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestIntervalGrid(t *testing.T) {
	start := created.Add(90 * time.Minute)
	min := func(m float64) time.Time { return created.Add(time.Duration(m * float64(time.Minute))) }
	every := Spec{Kind: KindInterval, Every: 10 * time.Minute}
	phased := Spec{Kind: KindInterval, Every: 10 * time.Minute, StartAt: start, EndAt: start.Add(20 * time.Minute)}
	cases := []struct {
		name       string
		spec       Spec
		at         time.Time
		next, prev time.Time // zero: none
	}{
		{"anchor itself is not nominal", every, min(0), min(10), time.Time{}},
		{"before anchor", every, min(-100), min(10), time.Time{}},
		{"on the grid", every, min(10), min(20), min(10)},
		{"just before", every, min(20).Add(-1), min(20), min(10)},
		{"phase kept after lateness", every, min(1234.5), min(1240), min(1230)},
		{"start is the first", phased, min(0), start, time.Time{}},
		{"start reached", phased, start, min(100), start},
		{"end is excluded", phased, min(100), time.Time{}, min(100)},
		{"long after the end", phased, min(1e6), time.Time{}, min(100)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := compile(t, c.spec, created)
			if got, ok := s.Next(c.at); !got.Equal(c.next) || ok == c.next.IsZero() {
				t.Errorf("Next = %v, %v; want %v", got, ok, c.next)
			}
			if got, ok := s.Prev(c.at); !got.Equal(c.prev) || ok == c.prev.IsZero() {
				t.Errorf("Prev = %v, %v; want %v", got, ok, c.prev)
			}
		})
	}
}

func TestFixedDelay(t *testing.T) {
	s := compile(t, Spec{Kind: KindInterval, Every: time.Minute, FixedDelay: true}, created)
	started := compile(t, Spec{Kind: KindInterval, Every: time.Minute, FixedDelay: true, StartAt: created.Add(time.Second)}, created)
	cases := []struct {
		name        string
		s           *Schedule
		after, want time.Time
	}{
		{"first after creation", s, created, created.Add(time.Minute)},
		{"asked before creation", s, created.Add(-time.Hour), created.Add(time.Minute)},
		{"early manual run", s, created.Add(time.Second), created.Add(61 * time.Second)},
		{"counted from completion", s, created.Add(7*time.Hour + 13*time.Millisecond), created.Add(7*time.Hour + 13*time.Millisecond + time.Minute)},
		{"first at start", started, created, created.Add(time.Second)},
		{"then from completion", started, created.Add(time.Second), created.Add(61 * time.Second)},
	}
	for _, c := range cases {
		if got, ok := c.s.Next(c.after); !ok || !got.Equal(c.want) {
			t.Errorf("%s: Next(%v) = %v, %v; want %v", c.name, c.after, got, ok, c.want)
		}
	}
	if got, ok := s.Prev(created.AddDate(1, 0, 0)); ok {
		t.Errorf("Prev = %v, want none", got)
	}
	if got := s.Count(created, created.AddDate(1, 0, 0), 99); got != 1 {
		t.Errorf("Count after a year = %d, want 1", got)
	}
	if got := s.Count(created, created.Add(59*time.Second), 99); got != 0 {
		t.Errorf("Count before it is due = %d, want 0", got)
	}
	if !s.FixedDelay() || compile(t, Spec{}, created).FixedDelay() {
		t.Error("FixedDelay wrong")
	}
}

func TestWindowOfCron(t *testing.T) {
	s := compile(t, Spec{Kind: KindCron, Cron: []string{"0 * * * *"},
		StartAt: utc("2026-05-01T10:00:00Z"), EndAt: utc("2026-05-01T12:00:00Z")}, created)
	got := upcoming(s, "UTC", created, 5)
	if want := []string{"2026-05-01 10:00:00 +0000", "2026-05-01 11:00:00 +0000"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if p, ok := s.Prev(utc("2030-01-01T00:00:00Z")); !ok || !p.Equal(utc("2026-05-01T11:00:00Z")) {
		t.Errorf("Prev long after = %v, %v", p, ok)
	}
	if p, ok := s.Prev(utc("2026-05-01T09:59:59Z")); ok {
		t.Errorf("Prev before start = %v, want none", p)
	}
}

func TestPeriod(t *testing.T) {
	monday := utc("2026-06-01T09:00:00Z")
	workdays := cronIn("", vixie, "0 9 * * MON-FRI")
	closed := workdays
	closed.EndAt = utc("2026-06-05T10:00:00Z")
	cases := []struct {
		name string
		spec Spec
		at   time.Time
		want time.Duration
	}{
		{"none", Spec{}, monday, 0},
		{"once", Spec{Kind: KindOnce, At: monday}, monday, 0},
		{"interval", Spec{Kind: KindInterval, Every: 42 * time.Millisecond}, monday, 42 * time.Millisecond},
		{"cron at a nominal time", workdays, monday, 24 * time.Hour},
		{"cron over the weekend", workdays, utc("2026-06-05T09:00:00Z"), 72 * time.Hour},
		{"a nanosecond late is the next slot", workdays, utc("2026-06-04T09:00:00.000000001Z"), 72 * time.Hour},
		{"the end does not shorten it", closed, utc("2026-06-05T09:00:00Z"), 72 * time.Hour},
		{"spring day is short", cronIn("Europe/Berlin", vixie, "0 0 * * *"), utc("2026-03-28T23:00:00Z"), 23 * time.Hour},
	}
	for _, c := range cases {
		if got := compile(t, c.spec, created).Period(c.at); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A job of one second that did not run for decades: a billion missed times.
func TestBillionMissed(t *testing.T) {
	s := compile(t, Spec{Kind: KindInterval, Every: time.Second}, created)
	now := created.Add(1e9*time.Second + 300*time.Millisecond)
	if got := s.Count(created, now, math.MaxInt); got != 1e9 {
		t.Errorf("Count = %d", got)
	}
	if got := s.Count(created, now, 1000); got != 1000 {
		t.Errorf("Count limited = %d", got)
	}
	if got, ok := s.Prev(now); !ok || !got.Equal(created.Add(1e9*time.Second)) {
		t.Errorf("Prev = %v, %v", got, ok)
	}
	if got, ok := s.Next(now); !ok || !got.Equal(created.Add(1e9*time.Second+time.Second)) {
		t.Errorf("Next = %v, %v", got, ok)
	}
}

func TestExtremes(t *testing.T) {
	farPast, farFuture := time.Unix(math.MinInt64/4, 0), time.Unix(math.MaxInt64/4, 0)
	for _, spec := range []Spec{
		{}, {Kind: KindOnce, At: created}, {Kind: KindInterval, Every: math.MaxInt64 / 1_000_000 * 1_000_000},
		{Kind: KindInterval, Every: time.Millisecond, FixedDelay: true}, cronIn("Europe/Berlin", vixie, "30 2 * * *"),
	} {
		s := compile(t, spec, created)
		if got, ok := s.Next(farFuture); ok {
			t.Errorf("%v: Next(far future) = %v", spec.Kind, got)
		}
		if got, ok := s.Prev(farPast); ok {
			t.Errorf("%v: Prev(far past) = %v", spec.Kind, got)
		}
		if got := s.Count(farFuture, farPast, 10); got != 0 {
			t.Errorf("%v: Count backwards = %d", spec.Kind, got)
		}
		if got := s.Count(farPast, farFuture, 3); got > 3 {
			t.Errorf("%v: Count = %d over its limit", spec.Kind, got)
		}
		if got := Upcoming(s, farFuture, 3, NewBudget(5)); len(got) != 0 {
			t.Errorf("%v: Upcoming(far future) = %v", spec.Kind, got)
		}
	}
}

func drawSpec(t *rapid.T) Spec {
	instants := rapid.Int64Range(created.UnixMilli(), created.UnixMilli()+1e8)
	var s Spec
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		s = Spec{Kind: KindOnce, At: timeFromMillis(instants.Draw(t, "at"))}
		return s
	case 1, 2:
		s = Spec{Kind: KindInterval, Every: time.Duration(rapid.Int64Range(1, 1e7).Draw(t, "every")) * time.Millisecond}
	case 3:
		pool := []string{"*/7 * * * *", "0 * * * *", "30 2 * * *", "5/20 1-4 * * *", "0 0 * * 0"}
		s = cronIn(rapid.SampledFrom([]string{"", "Europe/Berlin", "Australia/Lord_Howe"}).Draw(t, "zone"), vixie,
			rapid.SliceOfN(rapid.SampledFrom(pool), 1, 3).Draw(t, "cron")...)
	}
	if rapid.Bool().Draw(t, "starts") {
		s.StartAt = timeFromMillis(instants.Draw(t, "start"))
	}
	if rapid.Bool().Draw(t, "ends") {
		s.EndAt = timeFromMillis(max(s.StartAt.UnixMilli(), created.UnixMilli()) + rapid.Int64Range(1, 1e8).Draw(t, "end"))
	}
	return s
}

// Next, Prev, Count and Upcoming agree.
func TestConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := drawSpec(t)
		s, err := Compile(spec, created, 7)
		if err != nil {
			t.Fatalf("%+v: %v", spec, err)
		}
		after := time.UnixMicro(created.UnixMicro() + rapid.Int64Range(-1e11, 1e11).Draw(t, "after"))
		list := Upcoming(s, after, rapid.IntRange(0, 50).Draw(t, "n"), NewBudget(5))
		last := after
		for i, n := range list {
			if !n.After(last) {
				t.Fatalf("%v is not after %v", n, last)
			}
			if !spec.StartAt.IsZero() && n.Before(spec.StartAt) || !spec.EndAt.IsZero() && !n.Before(spec.EndAt) {
				t.Fatalf("%v lies outside the window of %+v", n, spec)
			}
			if p, ok := s.Prev(n); !ok || !p.Equal(n) {
				t.Fatalf("Prev(%v) = %v, %v", n, p, ok)
			}
			if p, ok := s.Prev(n.Add(-1)); i > 0 && (!ok || !p.Equal(last)) {
				t.Fatalf("Prev(%v - 1ns) = %v, %v; want %v", n, p, ok, last)
			}
			if c := s.Count(after, n, math.MaxInt); c != i+1 {
				t.Fatalf("Count up to %v = %d, want %d", n, c, i+1)
			}
			if c := s.Count(after, n.Add(-1), math.MaxInt); c != i {
				t.Fatalf("Count up to just before %v = %d, want %d", n, c, i)
			}
			if c := s.Count(after, n, i); c != i {
				t.Fatalf("Count with limit %d = %d", i, c)
			}
			last = n
		}
	})
}
