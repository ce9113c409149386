package job

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// calendar is the reference for what becomes of nominal times that passed: it
// looks at each of them, one by one, and keeps lists where the code keeps
// instants.
type calendar struct {
	d      Definition
	every  int64
	judged unixtime.Milli   // all up to here have their verdict
	kept   []unixtime.Milli // promised a run
	left   int64            // left out
	// working: the run that is live or planned is one of a backlog.
	working bool
}

// ended judges what passed until a run that began at begun has ended, and returns the next nominal time and when
// it runs.
func (m *calendar) ended(begun, now unixtime.Milli) (nominal, due unixtime.Milli) {
	m.drop(now)
	var missed, overlapped []unixtime.Milli
	for n := m.after(m.judged); n <= now; n += unixtime.Milli(m.every) {
		if n <= begun {
			missed = append(missed, n)
		} else {
			overlapped = append(overlapped, n)
		}
	}
	m.judged = now
	if m.d.Misfire.Policy != MisfireRunOnce || (m.working && m.d.Overlap == OverlapBufferAll) {
		m.kept = append(m.kept, missed...)
	} else {
		m.left += int64(len(missed))
	}
	m.drop(now)
	m.working = true
	switch {
	case m.d.Overlap == OverlapBufferAll:
		m.kept = append(m.kept, overlapped...)
	case len(m.kept) > 0:
		// A backlog is being worked off: what came meanwhile is judged later.
		if len(overlapped) > 0 {
			m.judged = overlapped[0] - 1
		}
	case m.d.Overlap == OverlapBufferOne && len(overlapped) > 0:
		m.left += int64(len(overlapped) - 1)
		m.kept = append(m.kept, overlapped[len(overlapped)-1])
		m.working = false
	default:
		m.left += int64(len(overlapped))
	}
	m.drop(now)
	limit := 0
	if m.d.Overlap == OverlapBufferAll {
		limit += m.d.OverlapLimit
	}
	if m.d.Misfire.Policy != MisfireRunOnce {
		limit += m.d.Misfire.MaxCatchUp
	}
	if more := len(m.kept) - max(limit, 1); more > 0 {
		m.left += int64(more)
		m.kept = m.kept[more:]
	}
	if len(m.kept) > 0 {
		nominal = m.kept[0]
		m.kept = m.kept[1:]
		return nominal, now
	}
	m.working = false
	nominal = m.after(now)
	m.judged = nominal
	return nominal, nominal
}

// drop leaves out what is past the window.
func (m *calendar) drop(now unixtime.Milli) {
	w := m.d.Misfire.effectiveWindow().Milliseconds()
	if w == 0 {
		return
	}
	n := len(m.kept)
	m.kept = slices.DeleteFunc(m.kept, func(at unixtime.Milli) bool { return int64(now-at) > w })
	m.left += int64(n - len(m.kept))
}

func (m *calendar) after(ms unixtime.Milli) unixtime.Milli {
	return t0 + unixtime.Milli(((int64(ms-t0))/m.every+1)*m.every)
}

// TestPassedTimesMatchTheReference compares nominal and due times of
// every run, and the number of those left out, over random delays and durations.
func TestPassedTimesMatchTheReference(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := def()
		d.Overlap = Overlap(rapid.IntRange(0, int(OverlapBufferAll)).Draw(r, "overlap"))
		d.OverlapLimit = rapid.IntRange(1, 6).Draw(r, "limit")
		d.Misfire.Policy = MisfirePolicy(rapid.IntRange(0, 2).Draw(r, "misfire"))
		d.Misfire.MaxCatchUp = rapid.IntRange(1, 6).Draw(r, "catch up")
		if d.Misfire.Policy == MisfireRunAll && rapid.Bool().Draw(r, "windowed") {
			d.Misfire.Window = time.Duration(rapid.IntRange(1, 10).Draw(r, "window")) * time.Minute
		}
		// A run that is due waits less than the window of the skip policy, whose
		// verdict at arrival is another test's.
		patience := int64(400)
		if d.Misfire.effectiveWindow() > 0 {
			patience = 0
		}
		w := walk(t, d)
		m := &calendar{d: d, every: 60_000, judged: w.s.Nominal}
		for range rapid.IntRange(1, 30).Draw(r, "runs") {
			w.lease().after(time.Duration(rapid.Int64Range(0, patience).Draw(r, "late")) * time.Second)
			begun := w.now
			w.after(time.Duration(rapid.Int64Range(0, 900).Draw(r, "takes")) * time.Second)
			w.on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeSucceeded, StartedMS: begun})
			nominal, due := m.ended(begun, w.now)
			if w.s.Nominal != nominal || w.s.Due != due || int64(w.s.Skipped) != m.left {
				r.Fatalf("run of +%d s due +%d s, %d left out; want +%d s, +%d s, %d",
					(int64(w.s.Nominal-t0))/1000, (int64(w.s.Due-t0))/1000, w.s.Skipped, (int64(nominal-t0))/1000, (int64(due-t0))/1000, m.left)
			}
		}
	})
}

// TestNthLatestNominal is the n-th time backwards, however it is found.
func TestNthLatestNominal(t *testing.T) {
	for name, s := range map[string]schedule.Spec{
		"interval": {Kind: schedule.KindInterval, Every: 90 * time.Second},
		"minutes":  {Kind: schedule.KindCron, Cron: []string{"* * * * *"}, TimeZone: "Europe/Berlin"},
		"hours":    {Kind: schedule.KindCron, Cron: []string{"7,8 * * * *"}, TimeZone: "America/New_York"},
		"seconds":  {Kind: schedule.KindCron, Cron: []string{"*/7 * * * * *"}, Seconds: true},
		"every":    {Kind: schedule.KindCron, Cron: []string{"@every 700ms"}},
	} {
		d := def()
		d.Schedule = s
		c := compile(t, d)
		rapid.Check(t, func(t *rapid.T) {
			upTo := t0 + unixtime.Milli(rapid.Int64Range(0, 400*24*3600*1000).Draw(t, "up to"))
			floor := int64(upTo - unixtime.Milli(rapid.Int64Range(0, 3600*1000).Draw(t, "back")))
			n := rapid.Int64Range(1, 80).Draw(t, "n")
			want := floor
			for at, left := upTo, n; ; left-- {
				if left == 0 {
					want = int64(at + 1)
					break
				}
				prev, ok := c.nominalUpTo(at)
				if !ok || prev <= unixtime.Milli(floor) {
					break
				}
				at = prev - 1
			}
			if got := c.nthLatestNominal(upTo, n, unixtime.Milli(floor)); got != unixtime.Milli(want) {
				t.Errorf("%s: %d, want %d", name, got, want)
			}
		})
	}
}

// TestCatchingUpPassesOverFewTimes checks that the count of a backlog ends after as many excluded times as one search
// may pass over, here those of about six weeks, however long ago the job ran last and however much it may catch up with.
func TestCatchingUpPassesOverFewTimes(t *testing.T) {
	d := def()
	d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"* * * * *"},
		Exclude: schedule.Exclusions{Cron: []string{"1-59 * * * *", "0 1-23 * * *"}}}
	d.Misfire = Misfire{Policy: MisfireRunAll, MaxCatchUp: 10_000}
	c, err := Compile(&d)
	if err != nil {
		t.Fatal(err)
	}
	now := unixtime.MilliOf(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC))
	floor := unixtime.MilliOf(time.Date(1970, 2, 1, 0, 0, 0, 0, time.UTC))
	got := c.nthLatestNominal(now, c.maxBacklog(), floor)
	if age := time.Duration(now-got) * time.Millisecond; age < 30*24*time.Hour || age > 50*24*time.Hour {
		t.Errorf("the backlog begins at %v, %v ago", got.Time().UTC(), age)
	}
	if clock := got.Time().UTC(); clock.Hour() != 0 || clock.Minute() != 0 {
		t.Errorf("the backlog begins at %v, which is excluded", clock)
	}
}

// BenchmarkBacklog works off a backlog of 5,000 minutes, run by run.
func BenchmarkBacklog(b *testing.B) {
	d := def()
	d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"* * * * *"}, TimeZone: "Europe/Berlin"}
	d.Misfire = Misfire{Policy: MisfireRunAll, MaxCatchUp: 10_000}
	for b.Loop() {
		w := walk(b, d)
		w.now += unixtime.Milli(5000 * time.Minute.Milliseconds())
		for range 5000 {
			w.lease().succeed()
		}
	}
}
