package schedule

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// manyStretches are schedules whose searches pass over hundreds of stretches.
func manyStretches() []Spec {
	hourly := excludedAlways(Exclusions{Cron: []string{"*/2 1-59 * * * *", "1-59/2 1-59 * * * *", "*/2 0 1-23 * * *"}})
	hourly.Cron, hourly.Seconds = []string{"* * * * * *", "*/3 * * * * *"}, true
	delay := Spec{Kind: KindInterval, Every: 20 * time.Second, FixedDelay: true, TimeZone: "Europe/Berlin",
		Exclude: Exclusions{Cron: []string{"*/2 * * * *", "1-59/2 0-22 * * *"}}}
	days := excludedAlways(Exclusions{Cron: []string{"*/2 * * * *", "1-59/2 1-23 * * *", "1-57/2 0 * * *"}})
	ending := days
	ending.EndAt = created.Add(3 * 24 * time.Hour)
	return []Spec{longLists(), hourly, delay, days, ending}
}

// TestRememberedSearchesChangeNothing checks that what a schedule remembers of long searches changes neither what later
// ones find nor what they take of a budget.
func TestRememberedSearchesChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		forgetful := compileIn(t, rapid.SampledFrom(manyStretches()).Draw(t, "spec"), created)
		s := forgetful.Remembering()
		limit := rapid.SampledFrom([]int{0, 7, 300, 1000, 1799, 2000, 5000}).Draw(t, "budget")
		for range 30 {
			at := created.Add(time.Duration(rapid.IntRange(0, 8).Draw(t, "half hours")) * 30 * time.Minute).
				Add(time.Duration(rapid.IntRange(-2, 2).Draw(t, "seconds")) * time.Second)
			b, want := &Budget{remaining: limit}, &Budget{remaining: limit}
			if rapid.Bool().Draw(t, "without a budget") {
				b, want = nil, nil
			}
			ask := rapid.SampledFrom([]func(*Schedule) (time.Time, bool){
				func(s *Schedule) (time.Time, bool) { return s.Next(at) },
				func(s *Schedule) (time.Time, bool) { return s.Prev(at) },
				func(s *Schedule) (time.Time, bool) { return s.NextAllowed(at) },
				func(s *Schedule) (time.Time, bool) { return at, s.Count(created, at, 3) == 3 },
			}).Draw(t, "question")
			got, found := ask(s.Within(b))
			if again, ok := ask(forgetful.Within(want)); !again.Equal(got) || ok != found {
				t.Fatalf("at %v: %v %v, want %v %v", at, got, found, again, ok)
			}
			if b != nil && b.remaining != want.remaining {
				t.Fatalf("at %v: %d are left of the budget, want %d", at, b.remaining, want.remaining)
			}
		}
	})
}

// TestALongSearchIsMadeOnce checks that equal searches over many excluded times are made once.
func TestALongSearchIsMadeOnce(t *testing.T) {
	s := compile(t, longLists(), created).Remembering()
	at := created.Add(40 * time.Second)
	first := 0
	for range 20 {
		s.Next(at)
		s.Prev(at)
		s.NextAllowed(at)
		s.Count(at, at.Add(time.Second), 1000)
		s.Within(NewBudget(1)).Next(at)
		if first == 0 {
			first = s.long.made
		}
	}
	if first == 0 || s.long.made != first {
		t.Errorf("%d long searches at first, %d after repetitions", first, s.long.made)
	}
}

// TestSegmentsServeTheirInstants checks that a segment is that of all the instants for which a search keeps it.
func TestSegmentsServeTheirInstants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone := must(time.LoadLocation(rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/New_York",
			"Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Europe/Dublin"}).Draw(t, "zone")))
		r := rule{zone: zone}
		year := rapid.OneOf(rapid.IntRange(1880, 2120), rapid.IntRange(1, 9999)).Draw(t, "year")
		at := time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC).Unix()
		var last segment
		for range 40 {
			at += rapid.Int64Range(-2, 2).Draw(t, "days")*secondsPerDay + rapid.Int64Range(-2, 2).Draw(t, "seconds") +
				rapid.SampledFrom([]int64{0, 0, -200, 200}).Draw(t, "more days")*secondsPerDay
			r.updateSegment(&last, at)
			if want := r.segmentAt(at); last != want {
				t.Fatalf("at %d: %+v, want %+v", at, last, want)
			}
		}
	})
}

// TestResolvedForms checks that the forms of days are resolved for each kind of month.
func TestResolvedForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"0 0 1,15W,L-3 * *", "0 0 LW 2-12/2 MON#5", "0 0 * * FRI#L", "0 0 31 * *"}).Draw(t, "expression")
		f, err := excludedFields(text, false, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			y, m := rapid.IntRange(-40, 60).Draw(t, "year"), rapid.IntRange(1, 12).Draw(t, "month")
			if rapid.Bool().Draw(t, "late") {
				y += 9980
			}
			if days := int(dayNumber(y, m+1, 1) - dayNumber(y, m, 1)); monthLength(y, m) != days {
				t.Fatalf("%d-%d has %d days, not %d", y, m, days, monthLength(y, m))
			}
			want := uint64(0)
			if f.month&(1<<m) != 0 {
				want = f.resolveDays(newMonth(y, m))
			}
			if got := f.matchingDays(y, m); got != want {
				t.Fatalf("%s in %d-%d: %b, want %b", text, y, m, got, want)
			}
		}
	})
}
