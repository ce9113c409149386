package job

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// excludingDef draws a recurring job whose schedule may exclude times.
func excludingDef(t *rapid.T) Definition {
	d := def()
	d.ID = rapid.StringMatching("[a-z]{1,4}").Draw(t, "id")
	zone := rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe"}).Draw(t, "zone")
	// Near a change of the clock, or anywhere.
	anchor := rapid.SampledFrom([]string{"2026-03-28T20:00:00Z", "2026-10-24T20:00:00Z", "2018-11-03T22:00:00Z", "2026-10-03T10:00:00Z", "2027-01-04T12:00:00Z"}).Draw(t, "anchor")
	at, _ := time.Parse(time.RFC3339, anchor)
	d.AnchorMS = unixtime.Milli(at.UnixMilli() + rapid.Int64Range(0, 600_000).Draw(t, "after"))
	d.CreatedMS, d.UpdatedMS = d.AnchorMS, d.AnchorMS
	spec := &d.Schedule
	if rapid.Bool().Draw(t, "cron") {
		*spec = schedule.Spec{Kind: schedule.KindCron, Cron: []string{rapid.SampledFrom([]string{"*/10 * * * *", "30 2 * * *", "15 0-6 * * *", "H * * * *"}).Draw(t, "expression")}}
	} else {
		spec.Every = time.Duration(rapid.IntRange(10, 7200).Draw(t, "every")) * time.Second
		spec.FixedDelay = rapid.Bool().Draw(t, "fixed delay")
	}
	if !spec.FixedDelay {
		spec.Jitter = time.Duration(rapid.SampledFrom([]int{0, 30, 3600}).Draw(t, "jitter")) * time.Second
	}
	windows := []string{"22:00-06:00", "02:00-03:00", "Sat,Sun", "00:00-01:00", "12:00-12:07", "03:00-03:30"}
	spec.Exclude.Windows = rapid.SliceOfN(rapid.SampledFrom(windows), 0, 2).Draw(t, "windows")
	spec.Exclude.Cron = rapid.SliceOfN(rapid.SampledFrom([]string{"* 2 * * *", "0-29/2 * * * *", "30 2 * * *"}), 0, 1).Draw(t, "expressions")
	for range rapid.IntRange(0, 2).Draw(t, "periods") {
		from := at.Add(time.Duration(rapid.IntRange(0, 7200).Draw(t, "from")) * time.Second)
		spec.Exclude.Periods = append(spec.Exclude.Periods, schedule.Period{From: from, To: from.Add(time.Duration(rapid.IntRange(1, 20_000).Draw(t, "length")) * time.Second)})
	}
	if spec.Kind == schedule.KindCron || !spec.Exclude.Empty() {
		spec.TimeZone = zone
	}
	if rapid.Bool().Draw(t, "ends") {
		spec.EndAt = at.Add(time.Duration(rapid.IntRange(1, 100).Draw(t, "end")) * time.Hour)
	}
	jitter := rapid.SampledFrom([]backoff.Jitter{{Kind: backoff.JitterNone}, backoff.DefaultJitter()}).Draw(t, "delay jitter")
	d.Retry.Jitter, d.Backoff.Jitter = jitter, jitter
	d.Retry.MaxAttempts = rapid.IntRange(1, 4).Draw(t, "attempts")
	d.Retry.Base = time.Duration(rapid.SampledFrom([]int{1, 60, 1800}).Draw(t, "base")) * time.Second
	d.Retry.MaxElapsed = time.Duration(rapid.SampledFrom([]int{0, 0, 3600}).Draw(t, "elapsed")) * time.Second
	d.Overlap = Overlap(rapid.IntRange(0, int(OverlapTerminateOther)).Draw(t, "overlap"))
	d.Misfire.Policy = MisfirePolicy(rapid.IntRange(0, 2).Draw(t, "misfire"))
	d.PauseAfter = rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "pause after")
	if _, err := Compile(&d); err != nil {
		t.Skip("nothing is left")
	}
	return d
}

// familyOf begins at the creation of a job.
func familyOf(t *rapid.T, d Definition) *family {
	c, err := Compile(&d)
	if err != nil {
		t.Fatal(err)
	}
	return &family{c: c, parent: New(c, d.AnchorMS).State, children: map[int]State{}, now: d.AnchorMS, live: map[uint64]bool{}}
}

// failing drives a family as nodes would, with workers whose handlers fail at once, and
// returns when the runs of its schedule were due.
func (f *family) failing(n int) (dues []unixtime.Milli) {
	counted := ""
	for steps := 0; len(dues) < n && steps < 50*n; steps++ {
		child := f.first(due)
		for slot, s := range f.children {
			if s.Region == RegionDue && (s.Due < f.children[child].Due || s.Due == f.children[child].Due && slot < child) {
				child = slot
			}
		}
		parent := f.parent.Region == RegionDue && f.parent.Due < NeverMS
		switch {
		case child >= 0 && (!parent || f.children[child].Due < f.parent.Due):
			f.leaseChild(child)
			f.failLive()
		case parent:
			run, at := f.parent.RunID(), f.parent.Due
			f.lease()
			if f.live[f.token] && run != counted {
				counted, dues = run, append(dues, at)
			}
			f.failLive()
		default:
			return dues
		}
	}
	return dues
}

// failLive ends the attempts that have begun.
func (f *family) failLive() {
	for slot, s := range f.children {
		if s.Live() && f.live[s.Token] {
			f.onChild(slot, FinishAttempt{Token: s.Token, Outcome: OutcomeFailed, StartedMS: f.now})
		}
	}
	if f.parent.Live() {
		f.on(FinishAttempt{Token: f.parent.Token, Outcome: OutcomeFailed, StartedMS: f.now})
	}
}

// The preview of runs that all fail matches the decisions, and none of them is due at an excluded time.
func TestPreviewOfFailuresMatchesDecisions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := familyOf(t, excludingDef(t))
		f.failing(rapid.IntRange(0, 5).Draw(t, "failed before"))
		if len(f.children) > 0 || f.parent.Region != RegionDue {
			return // runs beside it are not part of the preview
		}
		f.now += unixtime.Milli(rapid.Int64Range(0, 100_000).Draw(t, "waits"))
		got := ProjectFailures(f.c, f.parent, f.now, 12, func() bool { return true })
		want := f.failing(12)
		if !slices.Equal(got, want) {
			t.Fatalf("preview %v\nhappened %v\n%+v", got, want, f.c.Schedule)
		}
		for _, ms := range got {
			if clear, ok := f.c.NextAllowed(ms); !ok || clear != ms {
				t.Fatalf("due at %v, which is excluded until %v: %+v", ms.Time().UTC(), clear.Time().UTC(), f.c.Schedule)
			}
		}
	})
}

// A preview of a job that is paused is of how it will be, and one of a live run begins with that.
func TestThePreviewBeginsWithTheCurrentRun(t *testing.T) {
	all := func() bool { return true }
	w := walk(t, def())
	planned := ProjectFailures(w.c, w.s, w.now, 4, all)
	w.on(Pause{})
	if got := ProjectFailures(w.c, w.s, w.now, 4, all); !slices.Equal(got, planned) {
		t.Errorf("paused: %v, want %v", got, planned)
	}
	w.on(Resume{})
	w.lease()
	if got := ProjectFailures(w.c, w.s, w.now, 4, all); !slices.Equal(got, planned) {
		t.Errorf("live: %v, want %v", got, planned)
	}
	for i := 1; i < len(planned); i++ {
		if wait := int64(planned[i] - planned[i-1]); wait != int64(60_000)<<i {
			t.Errorf("after %d failures it waits %d ms", i, wait)
		}
	}
	if got := ProjectFailures(w.c, w.s, w.now, 4, func() bool { return false }); len(got) != 1 {
		t.Errorf("without patience: %v", got)
	}
	d := def()
	d.PauseAfter = 2
	if w := walk(t, d); len(ProjectFailures(w.c, w.s, w.now, 4, all)) != 2 {
		t.Error("a job that pauses itself goes on")
	}
}

// The example of a maintenance window: a failing job runs again at its end.
func TestThePreviewOfAMaintenanceWindow(t *testing.T) {
	d := def()
	d.Schedule.Every = 2 * time.Second
	at := func(s int64) unixtime.Milli { return t0 + unixtime.Milli(s*1000) }
	d.Schedule.Exclude.Periods = []schedule.Period{{From: at(5).Time(), To: at(37).Time()}}
	w := walk(t, d)
	got := ProjectFailures(w.c, w.s, w.now, 3, func() bool { return true })
	if want := []unixtime.Milli{at(2), at(37), at(37 + 8)}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
