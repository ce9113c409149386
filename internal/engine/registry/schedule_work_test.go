package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// looked counts the schedules that were looked at: those that no other one of the call has
// used up the work of.
func looked(l job.Limits, specs []schedule.Spec) (n int, faults []job.Violation) {
	for _, s := range specs {
		v := job.ValidateSchedule("job.schedule", s, time.UnixMilli(1_800_000_000_000), l)
		if len(v) == 1 && strings.Contains(v[0].Description, "was not looked at") {
			faults = append(faults, v[0])
			continue
		}
		n++
	}
	return n, faults
}

func many(n int, spec func(i int) schedule.Spec) (all []schedule.Spec) {
	for i := range n {
		all = append(all, spec(i))
	}
	return all
}

// TestSchedulesOfACallAreBoundedTogether: a thousand schedules that each take as long as one may are
// refused but for the first few, by field; a thousand as people have them are not.
func TestSchedulesOfACallAreBoundedTogether(t *testing.T) {
	cron := func(exclude schedule.Exclusions, expressions ...string) schedule.Spec {
		return schedule.Spec{Kind: schedule.KindCron, Cron: expressions, TimeZone: "Europe/Berlin", Exclude: exclude}
	}
	always := func(i int, more ...string) schedule.Exclusions {
		return schedule.Exclusions{Cron: append([]string{"* * * * *"}, append(more, fmt.Sprintf("%d %d * * *", i%60, i/60))...)}
	}
	for name, specs := range map[string][]schedule.Spec{
		"never, each in another way": many(1000, func(i int) schedule.Spec { return cron(always(i), "* * * * *") }),
		"sixteen exclusions": many(1000, func(i int) schedule.Spec {
			return cron(always(i, slices.Repeat([]string{"1 1 29 2 *"}, 14)...), slices.Repeat([]string{"* * * * *"}, 16)...)
		}),
		"hardly ever": many(1000, func(i int) schedule.Spec {
			return cron(schedule.Exclusions{Cron: append([]string{fmt.Sprintf("%d 1 * * *", i%60)}, hardlyEver...)}, "* * * * *")
		}),
		"an interval": many(1000, func(i int) schedule.Spec {
			return schedule.Spec{Kind: schedule.KindInterval, Every: time.Duration(i+5) * time.Second, Exclude: schedule.Exclusions{Cron: []string{"* * * * *"}}}
		}),
	} {
		n, faults := looked(limitsOfOneCall(), specs)
		if n == 0 || n > 200 || len(faults) > 0 && faults[0].Field != "job.schedule" {
			t.Errorf("%s: %d of %d were looked at, then %+v", name, n, len(specs), faults[:min(1, len(faults))])
		}
		if n, _ := looked(job.DefaultLimits(), specs[:3]); n != 3 {
			t.Errorf("%s: each by itself, %d of 3 were looked at", name, n)
		}
	}
	holidays := schedule.Exclusions{Windows: []string{"sat,sun"}}
	for day := range 12 {
		holidays.Dates = append(holidays.Dates, fmt.Sprintf("12-%02d", 20+day))
	}
	for name, spec := range map[string]schedule.Spec{
		"nightly": cron(schedule.Exclusions{}, "5 4 * * *"), "office hours": cron(holidays, "*/5 8-17 * * MON-FRI", "0 12 * * *"),
		"not at night": cron(schedule.Exclusions{Cron: []string{"* 0-5 * * *"}}, "*/10 * * * *"),
	} {
		if n, faults := looked(limitsOfOneCall(), many(1000, func(int) schedule.Spec { return spec })); n != 1000 {
			t.Errorf("%s: %d of 1,000 were looked at, then %+v", name, n, faults[0])
		}
	}
}

// TestEqualFaultsAreFoundOnce: the second of two equal schedules that are refused costs nothing.
func TestEqualFaultsAreFoundOnce(t *testing.T) {
	l := limitsOfOneCall()
	spec := schedule.Spec{Kind: schedule.KindCron, Cron: []string{"* * * * *"}, Exclude: schedule.Exclusions{Cron: []string{"* * * * *"}}}
	anchor := time.UnixMilli(1_800_000_000_000)
	first := job.ValidateSchedule("job.schedule", spec, anchor, l)
	used := l.Work.(*scheduleWork).used.Load()
	for range 999 {
		if v := job.ValidateSchedule("job.schedule", spec, anchor, l); !slices.Equal(v, first) || len(v) == 0 {
			t.Fatalf("%+v, the first time %+v", v, first)
		}
	}
	if l.Work.(*scheduleWork).used.Load() != used || used == 0 {
		t.Errorf("a thousand equal schedules take %d steps, one takes %d", l.Work.(*scheduleWork).used.Load(), used)
	}
	other := spec
	other.Cron = []string{"5 4 * * *"}
	other.Exclude = schedule.Exclusions{}
	if v := job.ValidateSchedule("job.schedule", other, anchor, l); len(v) > 0 {
		t.Errorf("another schedule: %+v", v)
	}
}

// TestNobodyWaitsForARestore: what is restored for somebody who has given up is not looked at.
func TestNobodyWaitsForARestore(t *testing.T) {
	_, r := newFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var backups []job.Backup
	for i := range 20 {
		d := definition(fmt.Sprint("j", i))
		d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"nonsense"}}
		backups = append(backups, job.Backup{Definition: d})
	}
	for _, a := range r.Restore(ctx, backups, job.ExistingFail) {
		if !errors.Is(a.Err, context.Canceled) {
			t.Fatalf("%v", a.Err)
		}
	}
}

// limitsOfOneCall are the limits of a call that has its turn.
func limitsOfOneCall() job.Limits {
	r := Registry{o: Options{Limits: job.DefaultLimits()}}
	return r.limitsForSearch()
}
