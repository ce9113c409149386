package schedule

import (
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
		if rapid.Bool().Draw(t, "cron") {
			spec = cronIn(zone, vixie, rapid.SampledFrom([]string{"*/20 * * * *", "30 2 * * *", "0 */3 * * *"}).Draw(t, "expr"))
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
		e := naiveExclusions(spec, zone)
		var want []time.Time
		for _, n := range Upcoming(plain, from, 600, NewBudget(5)) {
			if !e(n) {
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

// naiveExclusions reads the exclusions anew: windows minute by minute from the wall
// clock, dates by comparing text.
func naiveExclusions(spec Spec, zone string) func(time.Time) bool {
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
	return func(at time.Time) bool {
		w := at.In(loc)
		// The same wall in UTC, where no clock changes.
		wall := time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), 0, 0, time.UTC)
		for _, r := range rules {
			if n, ok := r.Next(wall.Add(-1)); ok && n.Equal(wall) {
				return true
			}
		}
		for _, d := range spec.Exclude.Dates {
			from, to := d, d
			day := w.Format(time.DateOnly)
			if len(d) == 5 {
				day = w.Format("01-02")
			} else if len(d) > 10 {
				from, to = d[:10], d[11:]
			}
			if day >= from && day <= to {
				return true
			}
		}
		for _, p := range spec.Exclude.Periods {
			if !at.Before(p.From) && at.Before(p.To) {
				return true
			}
		}
		return week[int(w.Weekday())*1440+w.Hour()*60+w.Minute()]
	}
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
	if until, excluded := s.Excluded(utc("2026-06-01T21:00:00Z")); !excluded || !until.Equal(utc("2026-06-02T04:00:00Z")) {
		t.Errorf("excluded %v until %v", excluded, until)
	}
	if _, excluded := s.Excluded(utc("2026-06-01T12:00:00Z")); excluded {
		t.Error("noon is excluded")
	}
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
			if until, excluded := s.Excluded(n); excluded || !n.After(last) {
				t.Fatalf("Next(%v) = %v, excluded until %v", last, n, until)
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
