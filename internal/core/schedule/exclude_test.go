package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestExclusionsOfKnownDays(t *testing.T) {
	cases := []struct {
		name string
		e    Exclusions
		from string
		want []string
	}{
		{"noon by cron", Exclusions{Cron: []string{"* 12 * * *"}}, "2026-06-01 11:15",
			[]string{"2026-06-01 11:30:00 +0200", "2026-06-01 13:00:00 +0200"}},
		{"a day", Exclusions{Dates: []string{"2026-12-25"}}, "2026-12-24 23:15",
			[]string{"2026-12-24 23:30:00 +0100", "2026-12-26 00:00:00 +0100"}},
		{"a range over new year", Exclusions{Dates: []string{"2026-12-24/2027-01-02"}}, "2026-12-23 23:15",
			[]string{"2026-12-23 23:30:00 +0100", "2027-01-03 00:00:00 +0100"}},
		{"a day of every year", Exclusions{Dates: []string{"12-25"}}, "2029-12-24 23:45",
			[]string{"2029-12-26 00:00:00 +0100"}},
		{"the night, past midnight", Exclusions{Windows: []string{"22:00-06:00"}}, "2026-06-01 21:15",
			[]string{"2026-06-01 21:30:00 +0200", "2026-06-02 06:00:00 +0200"}},
		{"the week end", Exclusions{Windows: []string{"Sat,Sun"}}, "2026-06-05 23:15",
			[]string{"2026-06-05 23:30:00 +0200", "2026-06-08 00:00:00 +0200"}},
		{"lunch on workdays", Exclusions{Windows: []string{"Mon-Fri 12:00-13:00"}}, "2026-06-05 11:45",
			[]string{"2026-06-05 13:00:00 +0200"}},
		{"no lunch on Saturday", Exclusions{Windows: []string{"Mon-Fri 12:00-13:00"}}, "2026-06-06 11:45",
			[]string{"2026-06-06 12:00:00 +0200"}},
		{"Friday night goes on into Saturday", Exclusions{Windows: []string{"Fri 22:00-02:00"}}, "2026-06-05 21:45",
			[]string{"2026-06-06 02:00:00 +0200"}},
		{"days wrap", Exclusions{Windows: []string{"Fri-Mon"}}, "2026-06-04 23:45",
			[]string{"2026-06-09 00:00:00 +0200"}},
		{"a stretch of time", Exclusions{Periods: []Period{{From: utc("2026-06-01T10:00:00Z"), To: utc("2026-06-01T11:00:00Z")}}}, "2026-06-01 11:45",
			[]string{"2026-06-01 13:00:00 +0200"}},
		{"exclusions that meet", Exclusions{Windows: []string{"22:00-24:00"}, Dates: []string{"2026-06-02"}, Cron: []string{"* 0 * * *"}}, "2026-06-01 21:45",
			[]string{"2026-06-03 01:00:00 +0200"}},
		{"the night when clocks go forward", Exclusions{Windows: []string{"01:00-03:00"}}, "2026-03-29 00:45",
			[]string{"2026-03-29 03:00:00 +0200"}},
		{"the night when clocks go back", Exclusions{Windows: []string{"02:00-03:00"}}, "2026-10-25 01:45",
			[]string{"2026-10-25 03:00:00 +0100"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			loc, err := time.LoadLocation("Europe/Berlin")
			if err != nil {
				t.Fatal(err)
			}
			after, err := time.ParseInLocation("2006-01-02 15:04", c.from, loc)
			if err != nil {
				t.Fatal(err)
			}
			s := compile(t, excluding(c.e), created)
			if got := upcoming(s, "Europe/Berlin", after, len(c.want)); !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// TestExclusionsAgainstEveryTime compares a schedule that jumps over exclusions
// with one that has none, whose times are looked at one by one.
func TestExclusionsAgainstEveryTime(t *testing.T) {
	texts := struct{ cron, dates, windows []string }{
		[]string{"* 12 * * *", "0 0-6/2 * * *", "30 * * * 1-5", "H H * * *", "* * 1 * *"},
		[]string{"2026-03-29", "2026-10-20/2026-10-26", "12-25", "02-29", "2026-06-01"},
		[]string{"22:00-06:00", "Sat,Sun", "Mon-Fri 12:00-13:00", "02:00-03:00", "Sun 01:30-02:30", "Fri-Mon 23:30-00:30"},
	}
	some := func(t *rapid.T, name string, from []string) []string {
		return rapid.SliceOfN(rapid.SampledFrom(from), 0, 2).Draw(t, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom([]string{"Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "UTC"}).Draw(t, "zone")
		spec := Spec{Kind: KindInterval, Every: time.Duration(rapid.IntRange(10, 200).Draw(t, "minutes")) * time.Minute}
		minute, hour := -1, -1
		if rapid.Bool().Draw(t, "cron") {
			expr := rapid.SampledFrom([]string{"*/20 * * * *", "30 2 * * *", "0 */3 * * *", "10 2 * * *", "45 0 * * *"}).Draw(t, "expr")
			spec = cronIn(zone, vixie, expr)
			fmt.Sscanf(expr, "%d %d", &minute, &hour) // else it is wild, and nothing is shifted
		}
		plain := must(Compile(spec, created, 7))
		spec.TimeZone = zone
		spec.Exclude = Exclusions{Cron: some(t, "cron", texts.cron), Dates: some(t, "dates", texts.dates), Windows: some(t, "windows", texts.windows)}
		from := created.Add(time.Duration(rapid.IntRange(0, 300*24).Draw(t, "hours")) * time.Hour)
		if rapid.Bool().Draw(t, "period") {
			spec.Exclude.Periods = []Period{{From: from.Add(5 * time.Hour), To: from.Add(29*time.Hour + time.Minute)}}
		}
		if spec.Exclude.Empty() {
			return
		}
		s, err := Compile(spec, created, 7)
		if err != nil {
			return // nothing is left
		}
		loc := must(time.LoadLocation(zone))
		excluded, hides := naiveExclusions(spec, zone)
		var want []time.Time
		for _, n := range Upcoming(plain, from, 600, NewBudget(5)) {
			w := n.In(loc)
			shifted := hour >= 0 && (w.Hour() != hour || w.Minute() != minute)
			if !excluded(n) && !(shifted && hides(time.Date(w.Year(), w.Month(), w.Day(), hour, minute, 0, 0, time.UTC))) {
				want = append(want, n)
			}
		}
		got := Upcoming(s, from, len(want), NewBudget(5))
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Fatalf("%+v from %v:\ngot  %v\nwant %v", spec, from, got, want)
		}
		for i, n := range want {
			if p, ok := s.Prev(n.Add(time.Minute - 1)); ok && i+1 < len(want) && want[i+1].Sub(n) > time.Minute && !p.Equal(n) {
				t.Fatalf("Prev after %v = %v", n, p)
			}
		}
		if len(want) > 0 {
			if n := s.Count(from, want[len(want)-1], 1000); n != len(want) {
				t.Fatalf("Count = %d, want %d", n, len(want))
			}
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// naiveExclusions evaluates the exclusions independently: windows minute by minute from the wall clock, dates by
// comparing text. It reports whether an instant, or a wall clock time (the same in UTC, where no clock changes),
// is excluded.
func naiveExclusions(spec Spec, zone string) (excluded, hides func(time.Time) bool) {
	loc := must(time.LoadLocation(zone))
	week := [7 * 24 * 60]bool{}
	for _, text := range spec.Exclude.Windows {
		for minute := range week {
			if inWindow(text, minute/1440, minute%1440) {
				week[minute] = true
			}
		}
	}
	var rules []*Schedule
	for _, text := range spec.Exclude.Cron {
		rules = append(rules, must(Compile(Spec{Kind: KindCron, Cron: []string{text}}, created.AddDate(-1, 0, 0), 7)))
	}
	hides = func(wall time.Time) bool {
		for _, r := range rules {
			if n, ok := r.Next(wall.Add(-1)); ok && n.Equal(wall) {
				return true
			}
		}
		for _, d := range spec.Exclude.Dates {
			from, to := d, d
			day := wall.Format(time.DateOnly)
			if len(d) == 5 {
				day = wall.Format("01-02")
			} else if len(d) > 10 {
				from, to = d[:10], d[11:]
			}
			if day >= from && day <= to {
				return true
			}
		}
		return week[int(wall.Weekday())*1440+wall.Hour()*60+wall.Minute()]
	}
	return func(at time.Time) bool {
		for _, p := range spec.Exclude.Periods {
			if !at.Before(p.From) && at.Before(p.To) {
				return true
			}
		}
		w := at.In(loc)
		return hides(time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), 0, 0, time.UTC))
	}, hides
}

// inWindow knows the windows of the test by heart.
func inWindow(text string, weekday, minute int) bool {
	clock := func(h, m int) int { return h*60 + m }
	switch text {
	case "22:00-06:00":
		return minute >= clock(22, 0) || minute < clock(6, 0)
	case "Sat,Sun":
		return weekday == 6 || weekday == 0
	case "Mon-Fri 12:00-13:00":
		return weekday >= 1 && weekday <= 5 && minute >= clock(12, 0) && minute < clock(13, 0)
	case "02:00-03:00":
		return minute >= clock(2, 0) && minute < clock(3, 0)
	case "Sun 01:30-02:30":
		return weekday == 0 && minute >= clock(1, 30) && minute < clock(2, 30)
	case "Fri-Mon 23:30-00:30":
		late := weekday == 5 || weekday == 6 || weekday == 0 || weekday == 1
		early := weekday == 6 || weekday == 0 || weekday == 1 || weekday == 2
		return late && minute >= clock(23, 30) || early && minute < clock(0, 30)
	}
	panic(text)
}

func TestFixedDelayWaitsForTheEndOfAnExclusion(t *testing.T) {
	spec := excluding(Exclusions{Windows: []string{"22:00-06:00"}})
	spec.FixedDelay = true
	s := compile(t, spec, created)
	if next, ok := s.Next(utc("2026-06-01T19:45:00Z")); !ok || !next.Equal(utc("2026-06-02T04:00:00Z")) {
		t.Errorf("next %v, want 06:00 in Berlin", next)
	}
	if clear, ok := s.NextAllowed(utc("2026-06-01T21:00:00Z")); !ok || !clear.Equal(utc("2026-06-02T04:00:00Z")) {
		t.Errorf("from 23:00 on, clear at %v, %v", clear, ok)
	}
	if clear, ok := s.NextAllowed(utc("2026-06-01T12:00:00Z")); !ok || !clear.Equal(utc("2026-06-01T12:00:00Z")) {
		t.Errorf("from noon on, clear at %v, %v", clear, ok)
	}
}

// What a gap swallows is excluded as if the clock had shown it, and so is the instant that it
// is shifted to.
func TestShiftedTimeIsExcludedWithItsOriginalTime(t *testing.T) {
	spring := map[string]string{"Europe/Berlin": "2026-03-28T12:00:00Z", "America/Sao_Paulo": "2018-11-03T12:00:00Z", "Australia/Lord_Howe": "2026-10-03T06:00:00Z", "UTC": "2026-03-28T12:00:00Z"}
	for name, tt := range map[string]struct {
		zone string
		expr []string
		e    Exclusions
		want string // the next time after the eve of the gap
	}{
		"a window":                     {"Europe/Berlin", []string{"30 2 * * *", "0 9 * * *"}, Exclusions{Windows: []string{"02:00-03:00"}}, "2026-03-29 09:00:00 +0200"},
		"a part of it":                 {"Europe/Berlin", []string{"30 2 * * *"}, Exclusions{Windows: []string{"02:00-02:30"}}, "2026-03-29 03:00:00 +0200"},
		"on that weekday":              {"Europe/Berlin", []string{"30 2 * * *"}, Exclusions{Windows: []string{"Sun 02:15-02:45"}}, "2026-03-30 02:30:00 +0200"},
		"on another":                   {"Europe/Berlin", []string{"30 2 * * *"}, Exclusions{Windows: []string{"Mon 02:15-02:45"}}, "2026-03-29 03:00:00 +0200"},
		"an expression":                {"Europe/Berlin", []string{"30 2 * * *"}, Exclusions{Cron: []string{"30 2 * 3 *"}}, "2026-04-01 02:30:00 +0200"},
		"one swallowed of two":         {"Europe/Berlin", []string{"10,50 2 * * *"}, Exclusions{Cron: []string{"10 2 * * *"}}, "2026-03-29 03:00:00 +0200"},
		"both swallowed":               {"Europe/Berlin", []string{"10,50 2 * * 0", "0 4 * * *"}, Exclusions{Cron: []string{"10,50 2 * * *"}}, "2026-03-29 04:00:00 +0200"},
		"one of two expressions":       {"Europe/Berlin", []string{"30 2 * * *", "0 3 * * *"}, Exclusions{Windows: []string{"02:00-03:00"}}, "2026-03-29 03:00:00 +0200"},
		"where it is shifted to":       {"Europe/Berlin", []string{"30 2 * * *"}, Exclusions{Windows: []string{"03:00-04:00"}}, "2026-03-30 02:30:00 +0200"},
		"a date":                       {"Europe/Berlin", []string{"30 2 * * *"}, Exclusions{Dates: []string{"03-29"}}, "2026-03-30 02:30:00 +0200"},
		"a period from the gap on":     {"Europe/Berlin", []string{"30 2 * * *"}, Exclusions{Periods: []Period{{utc("2026-03-29T01:00:00Z"), utc("2026-03-29T01:00:01Z")}}}, "2026-03-30 02:30:00 +0200"},
		"a period up to the gap":       {"Europe/Berlin", []string{"30 2 * * *"}, Exclusions{Periods: []Period{{utc("2026-03-29T00:00:00Z"), utc("2026-03-29T01:00:00Z")}}}, "2026-03-29 03:00:00 +0200"},
		"midnight":                     {"America/Sao_Paulo", []string{"30 0 * * *"}, Exclusions{Windows: []string{"00:00-01:00"}, Dates: []string{"2018-01-01"}, Periods: nil}, ""},
		"midnight, on Sundays":         {"America/Sao_Paulo", []string{"30 0 * * *"}, Exclusions{Windows: []string{"Sun 00:00-01:00"}}, "2018-11-05 00:30:00 -0200"},
		"past midnight from Saturday":  {"America/Sao_Paulo", []string{"30 0 * * *"}, Exclusions{Windows: []string{"Sat 23:00-00:45"}}, "2018-11-05 00:30:00 -0200"},
		"half an hour":                 {"Australia/Lord_Howe", []string{"10 2 * * *"}, Exclusions{Windows: []string{"02:00-02:15"}, Cron: []string{"0 0 1 1 *"}}, ""},
		"half an hour, another window": {"Australia/Lord_Howe", []string{"10 2 * * *"}, Exclusions{Windows: []string{"02:15-02:30"}}, "2026-10-04 02:30:00 +1100"},
	} {
		spec := cronIn(tt.zone, vixie, tt.expr...)
		spec.Exclude = tt.e
		eve := utc(spring[tt.zone])
		s, err := Compile(spec, eve, 7)
		if err != nil {
			// Nothing is left: the gap's own time has been what kept it alive.
			t.Fatalf("%s: %v", name, err)
		}
		got := ""
		if next := upcoming(s, tt.zone, eve, 1); len(next) == 1 {
			got = next[0]
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		if at, ok := s.Next(eve); ok {
			if prev, ok := s.Prev(at); !ok || !prev.Equal(at) {
				t.Errorf("%s: Prev(%v) = %v", name, at, prev)
			}
		}
	}
}

// The second pass of an hour is as excluded as the first.
func TestClearAfterWindowsAtAChangeOfTheClock(t *testing.T) {
	for _, tt := range []struct {
		e        Exclusions
		at, want string
	}{
		{Exclusions{Windows: []string{"02:00-03:00"}}, "2026-10-25T00:10:00Z", "2026-10-25T02:00:00Z"},   // both passes of 02:10
		{Exclusions{Windows: []string{"02:30-02:45"}}, "2026-10-25T00:30:00.5Z", "2026-10-25T00:45:00Z"}, // the first
		{Exclusions{Windows: []string{"02:30-02:45"}}, "2026-10-25T01:44:59.999Z", "2026-10-25T01:45:00Z"},
		{Exclusions{Windows: []string{"01:00-02:30"}}, "2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z"}, // into the gap
		{Exclusions{Windows: []string{"02:30-04:00"}}, "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"}, // out of it
		{Exclusions{Windows: []string{"02:30-04:00"}}, "2026-03-29T00:59:59.999Z", "2026-03-29T00:59:59.999Z"},
		{Exclusions{Windows: []string{"22:00-06:00"}}, "2026-03-28T22:00:00Z", "2026-03-29T04:00:00Z"},
		{Exclusions{Dates: []string{"2026-03-29"}}, "2026-03-29T12:00:00Z", "2026-03-29T22:00:00Z"},
		{Exclusions{Cron: []string{"* 2 * * *"}}, "2026-10-25T00:10:00Z", "2026-10-25T02:00:00Z"},
		{Exclusions{Cron: []string{"30 12 * * *"}}, "2026-06-01T10:30:59.999Z", "2026-06-01T10:31:00Z"},
		// One after the other, and beside each other.
		{Exclusions{Windows: []string{"22:00-24:00"}, Dates: []string{"06-02"}, Periods: []Period{{utc("2026-06-02T21:00:00Z"), utc("2026-06-02T22:00:00.007Z")}}},
			"2026-06-01T20:00:00Z", "2026-06-02T22:00:00.007Z"},
	} {
		s := compile(t, excluding(tt.e), created)
		if got, ok := s.NextAllowed(utc(tt.at)); !ok || !got.Equal(utc(tt.want)) {
			t.Errorf("%+v: Clear(%s) = %v, %v, want %s", tt.e, tt.at, got, ok, tt.want)
		}
	}
}

// An end that is far away is found by the next nominal time, or not at all.
func TestClearIsBounded(t *testing.T) {
	december := cronIn("Europe/Berlin", vixie, "0 0 1 * *")
	december.Exclude = Exclusions{Cron: []string{"* * * 12 *"}}
	s := compile(t, december, created)
	if got, ok := s.NextAllowed(utc("2026-12-01T12:00:00Z")); !ok || !got.Equal(utc("2026-12-31T23:00:00Z")) {
		t.Errorf("%v, %v: want the first of January in Berlin", got, ok)
	}
	for name, until := range map[string]string{"the last year": "9999-12-31T23:59:59.999Z", "a year": "2027-06-01T00:00:00Z"} {
		spec := excluding(Exclusions{Periods: []Period{{utc("2026-06-01T00:00:00Z"), utc(until)}}})
		got, ok := compile(t, spec, created).NextAllowed(utc("2026-06-02T00:00:00Z"))
		if !ok || !got.Equal(utc(until)) {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
	spec := excluding(Exclusions{Cron: []string{"* * * * 1-6", "* 1-23 * * 0", "* 0 2-31 * *", "* 0 * 2-12 *"}})
	s, err := Compile(spec, utc("2023-01-01T00:00:00+01:00").Add(-time.Minute), 7) // a Sunday, and the 1st of January
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := s.NextAllowed(utc("2023-01-02T00:00:00Z")); ok {
		t.Errorf("%v: want no end", got)
	}
}

// Jitter stays out of exclusions and does not reach the next nominal time for that.
func TestJitterAvoidsExclusions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := Spec{Kind: KindInterval, Every: time.Duration(rapid.IntRange(10, 200).Draw(t, "minutes")) * time.Minute, TimeZone: "Europe/Berlin"}
		spec.Exclude.Windows = []string{rapid.SampledFrom([]string{"22:00-06:00", "00:30-01:00", "Mon-Fri 12:00-13:00"}).Draw(t, "window")}
		spec.Jitter = time.Duration(rapid.IntRange(1, 24*60).Draw(t, "jitter")) * time.Minute
		s := must(Compile(spec, created, rapid.Uint64().Draw(t, "seed")))
		for _, n := range Upcoming(s, created, 50, NewBudget(5)) {
			due := s.Jittered(n)
			if clear, ok := s.NextAllowed(due); !ok || !clear.Equal(due) {
				t.Fatalf("%v is due at %v, which is excluded", n, due)
			}
			if next, ok := s.Next(n); due.Before(n) || ok && !due.Before(next) && due.After(n) {
				t.Fatalf("%v is due at %v, and the next is %v", n, due, next)
			}
		}
	})
}

func FuzzExclusions(f *testing.F) {
	f.Add("22:00-06:00", "2026-12-24/2027-01-02", "* 12 * * *", int64(1_780_000_000))
	f.Add("Sat,Sun", "12-25", "H H(1-5) * * *", int64(1_700_000_000))
	f.Add("Fri-Mon 23:30-00:30", "02-29", "*/5 * L * *", int64(0))
	f.Fuzz(func(t *testing.T, window, date, expr string, at int64) {
		at %= 4_000_000_000
		s, err := Compile(excluding(Exclusions{Windows: []string{window}, Dates: []string{date}, Cron: []string{expr}}), created, uint64(at))
		if err != nil {
			faults(t, err)
			return
		}
		last := time.Unix(at, 0)
		for range 10 {
			n, ok := s.Next(last)
			if !ok {
				break
			}
			if clear, ok := s.NextAllowed(n); !ok || !clear.Equal(n) || !n.After(last) {
				t.Fatalf("Next(%v) = %v, which is excluded until %v", last, n, clear)
			}
			last = n
		}
	})
}

func BenchmarkNextPastExclusions(b *testing.B) {
	for name, e := range map[string]Exclusions{
		"none": {}, "night": {Windows: []string{"22:00-06:00"}}, "year": {Dates: []string{"2026-01-01/2026-12-31"}},
		"dates": {Dates: slices.Repeat([]string{"12-25"}, 400)}, "hour by cron": {Cron: []string{"* 12 * * *"}},
	} {
		b.Run(name, func(b *testing.B) {
			spec := cronIn("Europe/Berlin", vixie, "*/5 * * * *")
			spec.Exclude = e
			s := compile(b, spec, created)
			rng := rand.New(rand.NewPCG(1, 2))
			for b.Loop() {
				s.Next(created.Add(time.Duration(rng.Int64N(300*24)) * time.Hour))
			}
		})
	}
}
