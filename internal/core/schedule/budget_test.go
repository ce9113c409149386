//go:build linux

package schedule

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// most is how often the yardstick fits into the dearest call; the dearest of the schedules
// below takes 2 to 4 of them.
const most = 10

// row is how many times the yardstick fits into a row of a thousand searches on a budget of five. Rare expressions,
// which look at decades of months, take 40 of them.
const row = 25 * most

// yardstick is the work of passing over as many excluded times as a search may, with one
// plain expression and one plain exclusion. Calls are measured in it, so that the speed of
// the machine does not count.
func yardstick(t *testing.T) func() {
	s := compile(t, excludedAlways(Exclusions{Cron: []string{"0 0 1 1 *"}}), created)
	return func() {
		at := floorMillis(created)
		for range maxSkippedTimes {
			s.exclude.stretchAt(at)
			at, _ = s.nextAny(at, nil)
		}
	}
}

// spent is the processor's time that a call takes, the least of some tries: what others do
// on the machine does not count, and garbage is not always collected.
func spent(call func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var u unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &u); err != nil {
			panic(err)
		}
		return time.Duration(u.Nano())
	}
	least := time.Duration(math.MaxInt64)
	for range 3 {
		before := used()
		call()
		least = min(least, used()-before)
	}
	return least
}

// TestWorkOfEachScheduleIsBounded: no call takes more than its multiple of the yardstick, with the dearest schedules
// that are accepted: many rare expressions, searches that find nothing, exclusions that
// leave nothing.
func TestWorkOfEachScheduleIsBounded(t *testing.T) {
	rare := []string{"0 0 29 2 */7", "59 23 31 */6 */7", "0 0 L-3,15W 2 MON#5", "30 2 8-14 3 */7", "0 0 29 2 FRI#5", "0 0 30W 2-12/2 *", "7 3 31 1-12/11 SUN#L"}
	days := make([]string, 0, 400)
	for d := range 400 {
		days = append(days, created.AddDate(0, 0, d).Format("2006-01-02"))
	}
	specs := map[string]Spec{
		"one of each":           cronIn("Europe/Berlin", vixie, rare...),
		"the rarest, 16 times":  cronIn("America/New_York", vixie, slices.Repeat([]string{"0 0 29 2 */7"}, 16)...),
		"a day that is no day":  cronIn("", vixie, "0 0 31 2 *"),
		"only what does not be": cronIn("America/New_York", skip, "30 2 8-14 3 */7"),
		"every minute, never":   excludedAlways(Exclusions{Cron: []string{"* * * * *"}}),
		"all days of a year":    excludedAlways(Exclusions{Dates: days}),
		"nearly all the time":   excludedAlways(Exclusions{Windows: []string{"00:01-00:00"}, Cron: []string{"0 0 1-28 * *", "0 0 29-31 1-11 *"}}),
		"expressions of each":   excludedAlways(Exclusions{Cron: []string{"* 0-22 * * *", "* 23 1-30 * *", "* 23 31 1-11 *"}}),
	}
	specs["most of the time"] = excludedAlways(Exclusions{Cron: []string{"* 0-22 * * *", "* 23 2-12 * *", "0-58 23 * * *"}})
	seconds := excludedAlways(Exclusions{Cron: []string{"* * 1-23 * * *", "1-59 * 0 * * *"}})
	seconds.Cron, seconds.Seconds = []string{"* * * * * *"}, true
	specs["every second, hardly ever"] = seconds
	// Each of its gaps is as long as one search may be.
	rarely := seconds
	rarely.Exclude = Exclusions{Cron: []string{"1-59 * * * * *", "0 1-59 * * * *", "0 0 1-4,6-9,11-14,16-19,21-23 * * *"}}
	specs["every second, at five hours"] = rarely
	rareBeside := excludedAlways(Exclusions{Cron: []string{"1-59 * * * *", "0 1-23 * * *", "0 0 1-6,8-13,15-20,22-26,28-31 * *"}})
	rareBeside.Cron = append(rareBeside.Cron, slices.Repeat([]string{"0 0 29 2 */7"}, 15)...)
	specs["rare expressions beside exclusions"] = rareBeside
	specs["long lists of days"] = longLists()
	plain := yardstick(t)
	accepted := 0
	for name, spec := range specs {
		var s *Schedule
		var err error
		within := func(limit time.Duration, what string, call func()) {
			if d, unit := spent(call), spent(plain); d > limit*unit {
				t.Errorf("%s: %s takes %v, %.0f times the %v that passing over %d plain times takes: want at most %d times", name, what, d, float64(d)/float64(unit), unit, maxSkippedTimes, limit)
			}
		}
		check := func(what string, call func()) { within(most, what, call) }
		check("Compile", func() { s, err = Compile(spec, created, 7) })
		if err != nil {
			continue // refused, and not dear
		}
		accepted++
		for _, at := range []time.Time{created, utc("1896-03-01T00:00:00Z"), utc("2096-02-29T00:00:01Z"), utc("9990-01-01T00:00:00Z")} {
			check(fmt.Sprint("Next after ", at), func() { s.Next(at) })
			check(fmt.Sprint("Prev before ", at), func() { s.Prev(at) })
			check(fmt.Sprint("Clear at ", at), func() { s.NextAllowed(at) })
		}
		within(row, "a thousand times", func() {
			for _, at := range Upcoming(s, created, 1000, NewBudget(5)) {
				s.JitterWindow(at)
			}
		})
		within(row, "Count", func() { s.Count(created, created.AddDate(1000, 0, 0), 1000) })
	}
	if accepted < len(specs)/2 {
		t.Errorf("%d of %d schedules are accepted: this test looks at nothing", accepted, len(specs))
	}
}

// longLists is a cron of expressions and exclusions with as many forms of days as one may have, which leaves two seconds
// of an hour.
func longLists() Spec {
	s := cronIn("America/New_York", vixie, slices.Repeat([]string{"* * * 1-31" + strings.Repeat(",15W", 50) + " * *"}, 16)...)
	s.Seconds = true
	never := slices.Repeat([]string{"* * * " + strings.Repeat("31W,", 57) + "31W * *"}, 12)
	s.Exclude.Cron = append(never, "*/2 1-29,31-59 * * * *", "1-59/2 1-59 * * * *", "1-59/2 0 * * * *", "2-59/2 0,30 * * * *")
	return s
}

// excludedAlways is a cron of every minute with exclusions.
func excludedAlways(e Exclusions) Spec {
	s := cronIn("Europe/Berlin", vixie, "* * * * *")
	s.Exclude = e
	return s
}

// TestExcludedStretchesHaveNoGap: all instants of the stretch that a step passes over, forwards or backwards, are
// excluded, and the step is right for each place in a stretch.
func TestExcludedStretchesHaveNoGap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.Bool().Draw(t, "seconds")
		field := rapid.SampledFrom([]string{"*", "*", "0", "1-59", "*/2", "3-9,11", "0-20"})
		text := field.Draw(t, "minute") + " " + rapid.SampledFrom([]string{"*", "0-22", "3", "1-23", "23"}).Draw(t, "hour") +
			" " + rapid.SampledFrom([]string{"*", "1-28", "29-31"}).Draw(t, "day") + " * *"
		spec := excludedAlways(Exclusions{Windows: []string{"22:00-06:00"}[:rapid.IntRange(0, 1).Draw(t, "windows")],
			Dates: []string{"2026-03-29", "12-31"}})
		step := int64(60_000)
		if seconds {
			text, step = field.Draw(t, "second")+" "+text, 1000
			spec.Cron, spec.Seconds = []string{"* * * * * *"}, true
		}
		spec.Exclude.Cron = []string{text}
		p := &problems{}
		zone, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		e := compileExclusions(spec, zone, 7, p)
		if err := p.joinErrors(); err != nil {
			t.Fatal(err)
		}
		base := utc(rapid.SampledFrom([]string{"2026-03-28T20:00:00Z", "2026-10-24T20:00:00Z", "2026-12-30T22:00:00Z", "2026-06-01T00:00:00Z"}).Draw(t, "base"))
		at := base.UnixMilli() + rapid.Int64Range(0, 30*3600).Draw(t, "at")*1000
		around, excluded := e.stretchAt(at)
		if !excluded {
			return
		}
		every := step * max(1, (around.until-around.since)/step/100) // a day has 86,400 seconds
		for ms := around.since; ms < around.until; ms += every {
			if _, is := e.stretchAt(ms); !is {
				t.Fatalf("from %d: %d is not excluded, but lies in %+v", at, ms, around)
			}
		}
	})
}

// TestFoundMatchesServeLaterSearches: searches that share what they have found come to the same times as those that do
// not, wherever they begin.
func TestFoundMatchesServeLaterSearches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		expressions := []string{"0 0 29 2 */7", "59 23 31 */6 */7", "0 0 L-3,15W 2 MON#5", "30 2 8-14 3 */7", "0 0 29 2 FRI#5", "7 3 31 1-12/11 SUN#L",
			"* * * * *", "*/7 3 * * *", "30 2 * * *", "0 12 1 * *"}
		zone := rapid.SampledFrom([]string{"", "Europe/Berlin", "America/New_York"}).Draw(t, "zone")
		spec := cronIn(zone, vixie, append(rapid.SliceOfN(rapid.SampledFrom(expressions), 1, 5).Draw(t, "cron"), "0 9 3 * *")...)
		s, err := Compile(spec, created, 7)
		if err != nil {
			t.Fatal(err)
		}
		matches, at := newRuleMatches(s), floorMillis(created)
		for range 60 {
			step := rapid.OneOf(rapid.Int64Range(-100_000, 100_000), rapid.Int64Range(-40*366*86_400_000, 40*366*86_400_000)).Draw(t, "step")
			at = max(floorMillis(created), at+step)
			want, found := s.nextCron(at, nil)
			if got, ok := s.nextCron(at, matches); got != want || ok != found {
				t.Fatalf("next after %d is %d %v, want %d %v", at, got, ok, want, found)
			}
			want, found = s.prevCron(at, nil)
			if got, ok := s.prevCron(at, matches); got != want || ok != found {
				t.Fatalf("last before %d is %d %v, want %d %v", at, got, ok, want, found)
			}
		}
	})
}
