//go:build linux

package schedule

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// budget is the time of a processor that one call may take, whatever the schedule.
const budget = 50 * time.Millisecond

// spent is the processor's time that a call takes: what others do on the machine does not
// count. The least of some tries, as the first one may collect garbage.
func spent(call func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		const thisThread = 1 // RUSAGE_THREAD
		var u syscall.Rusage
		if err := syscall.Getrusage(thisThread, &u); err != nil {
			panic(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	least := time.Duration(1 << 62)
	for range 3 {
		before := used()
		call()
		if least = min(least, used()-before); least <= budget {
			break
		}
	}
	return least
}

// TestNoScheduleIsDear: no call takes more than its budget, with the dearest schedules
// that are accepted: many rare expressions, searches that find nothing, exclusions that
// leave nothing.
func TestNoScheduleIsDear(t *testing.T) {
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
	accepted := 0
	for name, spec := range specs {
		var s *Schedule
		var err error
		check := func(what string, call func()) {
			if d := spent(call); d > budget {
				t.Errorf("%s: %s takes %v, want at most %v", name, what, d, budget)
			}
		}
		check("Compile", func() { s, err = Compile(spec, created, 7) })
		if err != nil {
			continue // refused, within the budget
		}
		accepted++
		for _, at := range []time.Time{created, utc("1896-03-01T00:00:00Z"), utc("2096-02-29T00:00:01Z"), utc("9990-01-01T00:00:00Z")} {
			check(fmt.Sprint("Next after ", at), func() { s.Next(at) })
			check(fmt.Sprint("Prev before ", at), func() { s.Prev(at) })
			check(fmt.Sprint("Excluded at ", at), func() { s.Excluded(at) })
		}
	}
	if accepted < len(specs)/2 {
		t.Errorf("%d of %d schedules are accepted: this test looks at nothing", accepted, len(specs))
	}
}

// excludedAlways is a cron of every minute with exclusions.
func excludedAlways(e Exclusions) Spec {
	s := cronIn("Europe/Berlin", vixie, "* * * * *")
	s.Exclude = e
	return s
}
