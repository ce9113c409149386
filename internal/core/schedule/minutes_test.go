package schedule

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// stepByMinute counts what CountByMinute counts, one nominal time after the other.
func stepByMinute(s *Schedule, after, upto time.Time) (firsts []time.Time, counts []int64) {
	for at := after; ; {
		next, ok := s.Next(at)
		if !ok || next.After(upto) {
			return firsts, counts
		}
		if k := len(firsts) - 1; k >= 0 && firsts[k].Truncate(time.Minute).Equal(next.Truncate(time.Minute)) {
			counts[k]++
		} else {
			firsts, counts = append(firsts, next), append(counts, 1)
		}
		at = next
	}
}

func compareMinutes(t rapid.TB, s *Schedule, after, upto time.Time) {
	firsts, counts := stepByMinute(s, after, upto)
	k := 0
	s.CountByMinute(after, upto, nil, func(first time.Time, n int64) bool {
		if k >= len(firsts) || !first.Equal(firsts[k]) || n != counts[k] {
			t.Fatalf("minute %d is %v with %d times; stepping gives %d minutes", k, first, n, len(firsts))
		}
		k++
		return true
	})
	if k != len(firsts) {
		t.Fatalf("%d minutes, stepping gives %d", k, len(firsts))
	}
}

func TestMinutesEqualStepping(t *testing.T) {
	days := map[string]string{"plain": "2026-06-01T00:00:00Z", "gap": "2026-03-28T20:00:00Z",
		"repeat": "2026-10-24T20:00:00Z"}
	specs := map[string]Spec{
		"seconds":        {Kind: KindCron, Cron: []string{"*/7 * * * * *"}, Seconds: true},
		"fixed hours":    {Kind: KindCron, Cron: []string{"10,20 */5 1-3 * * *"}, Seconds: true, Repeat: RepeatLast},
		"both passes":    {Kind: KindCron, Cron: []string{"30 2 * * *"}, Repeat: RepeatBoth},
		"skipped gap":    {Kind: KindCron, Cron: []string{"30 2 * * *"}, Gap: GapSkip},
		"union":          {Kind: KindCron, Cron: []string{"*/10 * * * *", "*/15 2 * * *"}},
		"short interval": {Kind: KindInterval, Every: 700 * time.Millisecond},
		"interval":       {Kind: KindInterval, Every: 90 * time.Second},
		"excluded interval": {Kind: KindInterval, Every: 13 * time.Second,
			Exclude: Exclusions{Windows: []string{"01:00-03:00"}}},
		"window": {Kind: KindInterval, Every: time.Second, StartAt: utc("2026-06-01T01:00:30Z"),
			EndAt: utc("2026-12-01T00:00:00Z")},
		"calendar": {Kind: KindCalendar, Calendar: Calendar{Times: []string{"02:30", "02:30:30", "03:00"}}},
	}
	for name, spec := range specs {
		if spec.Kind.Local() || !spec.Exclude.Empty() {
			spec.TimeZone = "Europe/Berlin"
		}
		s := compile(t, spec, created)
		for day, from := range days {
			t.Run(name+"/"+day, func(t *testing.T) {
				at := utc(from).Add(1234 * time.Millisecond)
				compareMinutes(t, s, at, at.Add(10*time.Hour+17*time.Second))
			})
		}
	}
}

func TestMinutesEqualSteppingAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"* * * * * *", "*/7 3-50/4 * * * *", "0 30 2 * * *", "5,59 59 1-3 * * *",
			"H H * * * *", "15 0 0 * * MON"}).Draw(t, "cron")
		zone := rapid.SampledFrom([]string{"", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu"}).Draw(t, "zone")
		s, err := Compile(Spec{Kind: KindCron, Cron: []string{text}, Seconds: true, TimeZone: zone,
			Repeat: RepeatPolicy(rapid.IntRange(0, 2).Draw(t, "repeat"))}, created, 7)
		if err != nil {
			t.Fatal(err)
		}
		at := created.Add(time.Duration(rapid.Int64Range(0, 365*86400*1000).Draw(t, "ms")) * time.Millisecond)
		compareMinutes(t, s, at, at.Add(time.Duration(rapid.Int64Range(0, 3*3600).Draw(t, "seconds"))*time.Second))
	})
}

func TestMinutesOfADenseScheduleAreFewSteps(t *testing.T) {
	steps, total := 0, int64(0)
	s := compile(t, Spec{Kind: KindCron, Cron: []string{"* * * * * *"}, Seconds: true}, created)
	s.CountByMinute(created, created.Add(24*time.Hour), nil, func(_ time.Time, n int64) bool {
		steps++
		total += n
		return true
	})
	if steps != 1441 || total != 86400 {
		t.Errorf("%d steps with %d times, want 1441 with 86400", steps, total)
	}
}

func TestResolvedHashHasTheSameTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := Spec{Kind: KindCron, Cron: []string{rapid.SampledFrom([]string{"H H * * *", "H/15 * * * *",
			"H(3-9) * * * THU", "0,H * * * *"}).Draw(t, "cron")}}
		seed := rapid.Uint64().Draw(t, "seed")
		resolved := spec.ResolveHash(seed)
		if !spec.UsesHash() || resolved.UsesHash() {
			t.Fatalf("%q resolved to %q", spec.Cron, resolved.Cron)
		}
		want, err := Compile(spec, created, seed)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Compile(resolved, created, 0)
		if err != nil {
			t.Fatal(err)
		}
		at := created
		for range 20 {
			a, _ := want.Next(at)
			if b, _ := got.Next(at); !a.Equal(b) {
				t.Fatalf("%q: after %v comes %v, want %v", resolved.Cron, at, b, a)
			}
			at = a
		}
	})
}

func TestCanonicalTextDiffersWithEachField(t *testing.T) {
	specs := []Spec{
		{Kind: KindCron, Cron: []string{"0 * * * *"}}, {Kind: KindCron, Cron: []string{"0 * * * *", ""}},
		{Kind: KindCron, Cron: []string{"0 * * * *"}, TimeZone: "Europe/Berlin"},
		{Kind: KindCron, Cron: []string{"0 * * * *"}, Exclude: Exclusions{Cron: []string{"0 * * * *"}}},
		{Kind: KindCron, Cron: []string{"0 * * * *"}, Exclude: Exclusions{Dates: []string{"0 * * * *"}}},
		{Kind: KindCron, Cron: []string{"0 * * * *"}, Jitter: time.Second},
		{Kind: KindCron, Cron: []string{"0 * * * *"}, EndAt: created},
		{Kind: KindCron, Cron: []string{"0 * * * *"}, StartAt: created},
		{Kind: KindInterval, Every: time.Minute}, {Kind: KindInterval, Every: time.Minute, FixedDelay: true},
		{Kind: KindInterval, Every: time.Minute, MaxRuns: 3},
		{Kind: KindCalendar, Calendar: Calendar{Times: []string{"09:00"}}},
		{Kind: KindCalendar, Calendar: Calendar{Times: []string{"09:00"}, Unit: CalendarWeek}},
		{Kind: KindCalendar, Calendar: Calendar{Times: []string{"09:00"}, Weekdays: []time.Weekday{1}}},
		{Kind: KindCalendar, Calendar: Calendar{Times: []string{"09:00"}, MonthDays: []int{1}}},
	}
	for i := range specs {
		for j := range specs {
			same := string(specs[i].AppendCanonical(nil)) == string(specs[j].AppendCanonical(nil))
			if same != specs[i].Equal(specs[j]) {
				t.Errorf("%+v and %+v have the same text: %v", specs[i], specs[j], same)
			}
		}
	}
}
