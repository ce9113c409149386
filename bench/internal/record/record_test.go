package record

import (
	"math"
	"testing"
	"time"
)

func TestPayload(t *testing.T) {
	due := time.Unix(0, 1_800_000_000_123_456_789)
	b := Payload(2, 4711, due, 200)
	c, i, at, err := parse(b)
	if len(b) != 200 || err != nil || c != 2 || i != 4711 || !at.Equal(due) {
		t.Errorf("%q: class %d, job %d, due %v, %v", b, c, i, at, err)
	}
	if _, _, at, err := parse(Payload(0, 1, time.Time{}, 0)); err != nil || !at.IsZero() {
		t.Errorf("due %v, %v", at, err)
	}
	for _, wrong := range []string{"", "short", "A00000000010000000000000000", "ax0000000010000000000000000"} {
		if _, _, _, err := parse([]byte(wrong)); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
	if id := ID(1, 42); len(id) != 24 {
		t.Errorf("id %q", id)
	}
}

func TestReports(t *testing.T) {
	r := New(4, 1)
	now := time.Now()
	r.Start(Payload(0, 0, now.Add(time.Hour), 0), now) // early, whatever the scheduler says
	r.Start(Payload(0, 1, now.Add(-time.Second), 0), time.Time{})
	r.Start(Payload(0, 2, time.Time{}, 0), now.Add(-2*time.Second)) // due later ones began before
	if n := r.Start(Payload(0, 2, time.Time{}, 0), now); n != 2 {
		t.Errorf("execution %d", n)
	}
	r.Start(Payload(1, 0, now, 0), time.Time{})
	reports, err := r.Reports(1, func(string) int { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	p := reports[0]
	if p.Jobs != 4 || p.Executions != 4 || p.Missing != 1 || p.Wrong != 2 || p.Early != 1 || reports[1].Wrong != 0 {
		t.Errorf("%+v", reports)
	}
	if p.LagMS.Min > -3_000_000 || p.LagMS.Max < 2000 || p.LagMS.Max > 60_000 {
		t.Errorf("lag %+v", p.LagMS)
	}
	if math.Abs(p.DisorderMS.Max-3_602_000) > 1 || p.DisorderMS.Min != 0 {
		t.Errorf("disorder %+v", p.DisorderMS)
	}
	if r.Executed() != 5 {
		t.Errorf("%d executions", r.Executed())
	}
	r.Start(Payload(0, 99, now, 0), time.Time{})
	if _, err := r.Reports(1, nil); err == nil {
		t.Error("a strange job is taken")
	}
}

// TestEarlyStartsAreExact: a start is early by one nanosecond, and a run of a recurring job by its exact due time, which
// the scheduler rounds.
func TestEarlyStartsAreExact(t *testing.T) {
	k := make(class, 2)
	for i, start := range []int64{999_999_999, 1_000_000_000} {
		k[i].start, k[i].due = start, 1_000_000_000
		k[i].runs.Store(1)
	}
	if p := k.report(1); p.Early != 1 || p.LagMS.Min != -1e-6 || p.LagMS.Max != 0 {
		t.Errorf("%+v", p)
	}
}

func TestRecurringRuns(t *testing.T) {
	const periods = 2
	r := NewRecurring(2, time.Minute, periods)
	now := time.Now()
	firsts := []time.Time{now.Add(-time.Minute), now.Add(400 * time.Microsecond)}
	for i, first := range firsts {
		for period := range periods + 1 { // the last is not recorded
			due := first.Add(time.Duration(period) * time.Minute)
			r.Start(Payload(0, i, first, 0), due.Add(time.Millisecond).Truncate(time.Millisecond))
		}
	}
	reports, err := r.Reports(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The first job's first run is a minute late and its second is due now; those of the second job are early.
	p := reports[0]
	if r.Executed() != 4 || p.Jobs != 4 || p.Wrong != 0 || p.Early < 1 || p.Early > 2 || p.LagMS.Max < 60_000 || p.LagMS.Min > -59_000 {
		t.Errorf("%d executions, %+v", r.Executed(), p)
	}
	r.Start(Payload(0, 1, firsts[1], 0), firsts[1])
	if reports, err = r.Reports(1, nil); err != nil || reports[0].Wrong != 1 {
		t.Errorf("a run that started twice: %+v, %v", reports, err)
	}
	r.Start(Payload(0, 1, firsts[1], 0), firsts[1].Add(-time.Hour))
	if _, err := r.Reports(1, nil); err == nil {
		t.Error("a run before the first is accepted")
	}
}
