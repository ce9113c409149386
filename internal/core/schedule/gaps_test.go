package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestShortGapsAreFound: nominal times that are close to each other are found however rare they are, and whatever is
// excluded before them.
func TestShortGapsAreFound(t *testing.T) {
	from := time.Date(2026, 11, 28, 12, 0, 30, 0, time.UTC)
	var meetMonthly, crowded []string
	for i := range 12 {
		meetMonthly = append(meetMonthly, fmt.Sprintf("%d * * %d,25 * *", i*5, i+1))
	}
	for i := range 16 {
		crowded = append(crowded, fmt.Sprintf("0 0 %d %d-%d * *", i, 1+i%12, i+16))
	}
	untilDecember := Exclusions{Cron: []string{
		"*/2 1-29,31-59 * 28-30 11 *", "1-59/2 1-59 * 28-30 11 *", "1-59/2 0 * 28-30 11 *", "2-59/2 0,30 * 28-30 11 *"}}
	cron := func(expressions ...string) Spec { return Spec{Kind: KindCron, Seconds: true, Cron: expressions} }
	daily := func(every int, times ...string) Spec {
		return Spec{Kind: KindCalendar, Calendar: Calendar{Every: every, Times: times}}
	}
	with := func(s Spec, e Exclusions) Spec { s.Exclude = e; return s }
	until := func(s Spec, end time.Time) Spec { s.EndAt = end; return s }
	for name, c := range map[string]struct {
		spec  Spec
		least time.Duration
		want  time.Duration
	}{
		"each second":                     {cron("* * * * * *"), 5 * time.Second, time.Second},
		"far enough":                      {cron("*/5 * * * * *"), 5 * time.Second, 0},
		"excluded until December":         {with(cron("* * * * * *"), untilDecember), 5 * time.Second, time.Second},
		"expressions that meet monthly":   {cron(meetMonthly...), time.Minute, 5 * time.Second},
		"expressions that never meet":     {cron("0 0 9 * * MON", "2 0 9 * * TUE"), time.Minute, 0},
		"meeting after the end":           {until(cron("0 0 9 3 * *", "2 0 9 3 12 *"), from.AddDate(0, 0, 3)), time.Minute, 0},
		"meeting on February 29, Sunday":  {cron("0 0 9 29 2 *", "2 0 9 * * SUN"), time.Minute, 2 * time.Second},
		"late in the day":                 {cron("0,58 0-56/2,59 1,3,5,7,8 * * *"), 5 * time.Second, 2 * time.Second},
		"midnight of consecutive days":    {cron("0 0 0 2 1 *", "58 59 23 1 1 *"), 5 * time.Second, 2 * time.Second},
		"midnight of other days":          {cron("0 0 0 1 1 *", "58 59 23 1 1 *"), 5 * time.Second, 0},
		"thinned by an exclusion":         {with(cron("* * * * * *"), Exclusions{Cron: []string{"1-9,11-59 * * * * *"}}), 10 * time.Second, 0},
		"a window without a time":         {with(cron("0,2 0 9 * * *", "0 0 12 * * *"), Exclusions{Windows: []string{"08:00-10:00"}}), time.Minute, 0},
		"a window on other weekdays":      {with(cron("0,2 0 9 * * *", "0 0 12 * * *"), Exclusions{Windows: []string{"mon-sat 08:00-10:00"}}), time.Minute, 2 * time.Second},
		"a window past midnight":          {with(cron("0,2 0 1 * * *", "0 0 12 * * *"), Exclusions{Windows: []string{"sun-fri 22:00-06:00"}}), time.Minute, 2 * time.Second},
		"dates that come":                 {with(cron("0,2 0 1 25 12 *", "0 0 1 1 6 *"), Exclusions{Dates: []string{"12-25"}}), time.Minute, 0},
		"dates that pass":                 {with(cron("0,2 0 1 25 12 *"), Exclusions{Dates: []string{"2026-12-25/2027-12-25"}}), time.Minute, 2 * time.Second},
		"hours":                           {daily(1, "09:00", "21:00:01"), 12 * time.Hour, 11*time.Hour + 59*time.Minute + 59*time.Second},
		"more than a day":                 {daily(2, "09:00"), 48 * time.Hour, 0},
		"less than some days":             {daily(2, "09:00"), 49 * time.Hour, 48 * time.Hour},
		"each second, of a least of some": {cron("* * * * * *"), time.Second, 0},
		"many kinds of days":              {cron(crowded...), 10 * time.Minute, 0},
	} {
		s, err := Compile(c.spec, from, 0)
		if err != nil {
			t.Fatal(name, err)
		}
		if got := s.FindShortGap(from, c.least); got.Found != c.want || got.Undecided {
			t.Errorf("%s: %+v, want %v", name, got, c.want)
		}
	}
}

// TestShortGapsAreThoseOfTheTimes compares the search with all times of a schedule.
func TestShortGapsAreThoseOfTheTimes(t *testing.T) {
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	found, none := 0, 0
	for seed := range uint64(150) {
		dice := rand.New(rand.NewPCG(seed, 1))
		few := func(n, first, last int) string {
			var list []string
			for range n {
				list = append(list, fmt.Sprint(first+dice.IntN(last-first+1)))
			}
			slices.Sort(list)
			return strings.Join(slices.Compact(list), ",")
		}
		expression := func(second string) string {
			return fmt.Sprintf("%s %s %s %s %s *", second, few(1, 0, 59), few(1+dice.IntN(2), 0, 2), few(4, 1, 28), few(3, 1, 12))
		}
		spec := Spec{Kind: KindCron, Seconds: true, EndAt: from.AddDate(3, 0, 0)}
		for range 1 + dice.IntN(4) {
			spec.Cron = append(spec.Cron, expression(few(1, 0, 59)))
		}
		if dice.IntN(2) == 0 {
			spec.Exclude.Cron = []string{expression("*"), fmt.Sprintf("* * %s * * MON-%s", few(1, 0, 2), dayNames[2+dice.IntN(5)])}
			spec.Exclude.Windows = []string{"tue,sun 23:30-00:20"}
			spec.Exclude.Dates = []string{"03-07", "2028-01-01/2028-06-30"}
		}
		s, err := Compile(spec, from, 0)
		if err != nil {
			continue // no time at all
		}
		least := time.Duration(1+dice.IntN(4)) * 10 * time.Minute
		shortest := time.Duration(0)
		times := Upcoming(s, from.Add(-time.Millisecond), 1<<20, NewBudget(1<<10))
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap < least && (shortest == 0 || gap < shortest) {
				shortest = gap
			}
		}
		got := s.FindShortGap(from, least)
		if got.Undecided || (got.Found > 0) != (shortest > 0) || got.Found >= least || got.Found > 0 && got.Found < shortest {
			t.Errorf("seed %d: %+v, want %v of %d times: %q but %q", seed, got, shortest, len(times), spec.Cron, spec.Exclude.Cron)
		}
		if shortest > 0 {
			found++
		} else {
			none++
		}
	}
	if found < 20 || none < 20 {
		t.Errorf("%d schedules with short gaps, and %d without", found, none)
	}
}

// TestSearchForShortGapsIsBounded: a schedule with very many kinds of days is not decided.
func TestSearchForShortGapsIsBounded(t *testing.T) {
	s := manyKindsOfDays(t)
	got := s.FindShortGap(time.Date(2026, 11, 28, 12, 0, 30, 0, time.UTC), 5*time.Second)
	if got.Found > 0 || !got.Undecided || got.Steps < 5_000 || got.Steps > 100_000 {
		t.Errorf("%+v", got)
	}
}

// TestSearchForShortGapsCountsExclusions: excluded dates are work once for each month, not on each day, and windows
// once for each kind of day.
func TestSearchForShortGapsCountsExclusions(t *testing.T) {
	from := time.Date(2026, 11, 28, 12, 0, 30, 0, time.UTC)
	steps := func(s *Schedule) int {
		got := s.FindShortGap(from, 5*time.Second)
		if got.Found > 0 || got.Undecided {
			t.Errorf("%+v", got)
		}
		return got.Steps
	}
	const months = 12 * searchYears
	many, few := steps(manyExclusions(t, maxExcludeDates, 0)), steps(manyExclusions(t, 10, 0))
	if added := many - few; added < months || added > 3*months {
		t.Errorf("%d dates took %d steps more than 10, want one to three for each of %d months", maxExcludeDates, added,
			months)
	}
	if added := steps(manyExclusions(t, 10, maxExcludeWindows)) - few; added < maxExcludeWindows {
		t.Errorf("%d windows took %d steps more than none", maxExcludeWindows, added)
	}
}

// manyExclusions excludes some dates and windows. None of its times are close to each other.
func manyExclusions(t testing.TB, dates, windows int) *Schedule {
	t.Helper()
	spec := Spec{Kind: KindCron, Seconds: true, Cron: []string{"0 0 9 * * MON", "2 0 9 * * TUE-SUN"}}
	for i := range dates {
		spec.Exclude.Dates = append(spec.Exclude.Dates, fmt.Sprintf("%d-%02d-%02d", 2100+i/28, 1+i%12, 1+i%28))
	}
	for range windows {
		spec.Exclude.Windows = append(spec.Exclude.Windows, "Sat 01:00-01:01")
	}
	s, err := Compile(spec, time.Date(2026, 11, 28, 12, 0, 30, 0, time.UTC), 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// manyKindsOfDays has expressions and exclusions that are on other days each, and are close to each other on none.
func manyKindsOfDays(t testing.TB) *Schedule {
	t.Helper()
	spec := Spec{Kind: KindCron, Seconds: true, Cron: []string{"0 * * * * MON", "2 * * * * TUE"}}
	for i := range 14 {
		spec.Cron = append(spec.Cron, fmt.Sprintf("10-59/5 * * %d-31/%d %d-12 *", 1+i, 2+i%7, 1+i%5))
	}
	for i := range 16 {
		spec.Exclude.Cron = append(spec.Exclude.Cron, fmt.Sprintf("11-14 * * %d-31/%d %d-12 *", 1+i, 3+i%5, 1+i%7))
	}
	s, err := Compile(spec, time.Date(2026, 11, 28, 12, 0, 30, 0, time.UTC), 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func BenchmarkFindShortGap(b *testing.B) {
	from := time.Date(2026, 11, 28, 12, 0, 30, 0, time.UTC)
	plain, err := Compile(Spec{Kind: KindCron, Seconds: true, Cron: []string{"*/10 * * * * *"}}, from, 0)
	if err != nil {
		b.Fatal(err)
	}
	never, err := Compile(Spec{Kind: KindCron, Seconds: true, Cron: []string{"0 0 9 * * MON", "2 0 9 * * TUE"}}, from, 0)
	if err != nil {
		b.Fatal(err)
	}
	for name, s := range map[string]*Schedule{"usual": plain, "never meeting": never,
		"many kinds of days": manyKindsOfDays(b), "many exclusions": manyExclusions(b, maxExcludeDates, maxExcludeWindows)} {
		b.Run(name, func(b *testing.B) {
			var g ShortGap
			for b.Loop() {
				g = s.FindShortGap(from, 5*time.Second)
			}
			b.ReportMetric(float64(g.Steps), "steps")
		})
	}
}
