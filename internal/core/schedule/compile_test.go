package schedule

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCompileRefuses(t *testing.T) {
	at := utc("2026-06-01T00:00:00Z")
	many := slices.Repeat([]string{"0 0 * * *"}, 17)
	seconds := func(exprs ...string) Spec { return Spec{Kind: KindCron, Seconds: true, Cron: exprs} }
	cases := []struct {
		name   string
		spec   Spec
		fields []string
		reason string
	}{
		{"unknown kind", Spec{Kind: 9}, []string{"kind"}, "unknown kind 9"},
		{"once without instant", Spec{Kind: KindOnce}, []string{"at"}, "required"},
		{"once outside window", Spec{Kind: KindOnce, At: at, EndAt: at}, []string{"at"}, "outside"},
		{"once in year 10000", Spec{Kind: KindOnce, At: at.AddDate(8000, 0, 0)}, []string{"at", "at"}, "9999"},
		{"zero interval", Spec{Kind: KindInterval}, []string{"every"}, "positive"},
		{"negative interval", Spec{Kind: KindInterval, Every: -time.Second}, []string{"every"}, "positive"},
		{"microseconds", Spec{Kind: KindInterval, Every: 1500 * time.Microsecond}, []string{"every"}, "millisecond"},
		{"window turned round", Spec{StartAt: at, EndAt: at.Add(-1)}, []string{"end_at"}, "not after"},
		{"empty window", Spec{StartAt: at, EndAt: at}, []string{"end_at"}, "not after"},
		{"foreign fields", Spec{Kind: KindInterval, Every: time.Hour, At: at, Cron: []string{"* * * * *"}, TimeZone: "UTC", Seconds: true, Gap: GapSkip, Repeat: RepeatLast},
			[]string{"at", "cron", "time_zone", "seconds", "gap", "repeat"}, "only for kind"},
		{"foreign fields of none", Spec{Every: time.Hour, FixedDelay: true}, []string{"every", "fixed_delay"}, "only for kind interval"},
		{"no expression", Spec{Kind: KindCron}, []string{"cron"}, "1 to 16"},
		{"too many", cronIn("", vixie, many...), []string{"cron"}, "17 expressions"},
		{"too long", cronIn("", vixie, "0 0 * * "+strings.Repeat("1,", 130)+"1"), []string{"cron[0]"}, "256"},
		{"too long every", cronIn("", vixie, "@every "+strings.Repeat("1h", 130)), []string{"cron[0]"}, "256"},
		{"empty text", cronIn("", vixie, " "), []string{"cron[0]"}, "empty"},
		{"line break", cronIn("", vixie, "0 0 * *\n*"), []string{"cron[0]"}, "printable"},
		{"TZ prefix", cronIn("", vixie, "TZ=Europe/Berlin 0 0 * * *"), []string{"cron[0]"}, "time_zone"},
		{"CRON_TZ prefix alone", cronIn("", vixie, "CRON_TZ=2025"), []string{"cron[0]"}, "time_zone"},
		{"each fault named", cronIn("Mars/Olympus", dst{9, 9}, "0 0 * * *", "61 * * * *", "x"),
			[]string{"gap", "repeat", "time_zone", "cron[1]", "cron[2]"}, "Mars/Olympus"},
		{"four fields", cronIn("", vixie, "0 0 * *"), []string{"cron[0]"}, "want 5"},
		{"seconds not opted in", cronIn("", vixie, "0 0 0 * * *"), []string{"cron[0]"}, "needs the setting seconds"},
		{"seconds missing", seconds("0 0 * * *"), []string{"cron[0]"}, "want 6"},
		{"never", cronIn("", vixie, "0 0 30 2 *"), []string{"cron[0]"}, "no instant"},
		{"never, listed beside a good one", cronIn("", vixie, "0 0 * * *", "0 0 31 4 *"), []string{"cron[1]"}, "no instant"},
		{"empty list item", cronIn("", vixie, "1,,2 * * * *"), []string{"cron[0]"}, "empty item"},
		{"only commas", cronIn("", vixie, ", * * * *"), []string{"cron[0]"}, "empty item"},
		{"half a range", cronIn("", vixie, "*-5 * * * *"), []string{"cron[0]"}, "neither"},
		{"hash range beyond the field", cronIn("", vixie, "H(0-60) * * * *"), []string{"cron[0]"}, "0-59"},
		{"hash range turned round", cronIn("", vixie, "H(9-3) * * * *"), []string{"cron[0]"}, "0-59"},
		{"hash range open", cronIn("", vixie, "H(3- * * * *"), []string{"cron[0]"}, "H(low-high)"},
		{"hash with a bad step", cronIn("", vixie, "* H/25 * * *"), []string{"cron[0]"}, "step of 1 to 24"},
		{"hash of something", cronIn("", vixie, "* Hx * * *"), []string{"cron[0]"}, "H(low-high)"},
		{"hash spread, Dkron", cronIn("", vixie, "~ * * * *"), []string{"cron[0]"}, "written H"},
		{"jitter too long", Spec{Kind: KindInterval, Every: time.Hour, Jitter: 25 * time.Hour}, []string{"jitter"}, "24h"},
		{"jitter of microseconds", Spec{Kind: KindInterval, Every: time.Hour, Jitter: time.Microsecond}, []string{"jitter"}, "millisecond"},
		{"jitter beside fixed delay", Spec{Kind: KindInterval, Every: time.Hour, FixedDelay: true, Jitter: time.Second}, []string{"jitter"}, "fixed_delay"},
		{"jitter of none", Spec{Jitter: time.Second}, []string{"jitter"}, "needs a schedule"},
		{"runs below zero", Spec{Kind: KindInterval, Every: time.Hour, MaxRuns: -1}, []string{"max_runs"}, "want 0"},
		{"runs of once", Spec{Kind: KindOnce, At: at, MaxRuns: 1}, []string{"max_runs"}, "only for kinds"},
		{"exclusions of once", Spec{Kind: KindOnce, At: at, Exclude: Exclusions{Dates: []string{"12-25"}}}, []string{"exclude"}, "only for kinds"},
		{"exclusions, each named", excluding(Exclusions{
			Cron: []string{"0 0 * * *", "x"}, Dates: []string{"2026-02-30", "2026-01-02/2026-01-01", "25-12"},
			Windows: []string{"22:00", "Mon 25:00-26:00", "", "Mon-Fry 1:00-2:00", "06:00-6:7"}, Periods: []Period{{From: at, To: at}},
		}), []string{"exclude.cron[1]", "exclude.dates[0]", "exclude.dates[1]", "exclude.dates[2]", "exclude.windows[0]", "exclude.windows[1]",
			"exclude.windows[2]", "exclude.windows[3]", "exclude.windows[4]", "exclude.periods[0]"}, "2026-12-24/2027-01-02"},
		{"nothing left", excluding(Exclusions{Windows: []string{"00:00-24:00"}}), []string{"exclude"}, "leaves no"},
		{"too many dates", excluding(Exclusions{Dates: slices.Repeat([]string{"12-25"}, 401)}), []string{"exclude.dates"}, "401"},
		{"day that is none", cronIn("", vixie, "0 0 * * mon-fry"), []string{"cron[0]"}, `"fry" is no day of the week, want 0 to 7, or SUN to SAT`},
		{"day in full", cronIn("", vixie, "0 0 * * Monday"), []string{"cron[0]"}, `write MON`},
		{"month in full", cronIn("", vixie, "0 0 1 JANUARY *"), []string{"cron[0]"}, `write JAN`},
		{"last Friday, Quartz", cronIn("", vixie, "0 0 * * 5L"), []string{"cron[0]"}, `written 5#L`},
		{"last Friday by name, Quartz", cronIn("", vixie, "0 0 * * FRIL"), []string{"cron[0]"}, `written FRI#L`},
		{"day beyond the month", cronIn("", vixie, "0 0 32 * *"), []string{"cron[0]"}, "32 is no day of the month, want 1 to 31"},
		{"signed", cronIn("", vixie, "+5 0 * * *"), []string{"cron[0]"}, "is no minute"},
		{"step of 0", cronIn("", vixie, "*/0 0 * * *"), []string{"cron[0]"}, "step of at least 1"},
		{"step that is none", cronIn("", vixie, "*/x 0 * * *"), []string{"cron[0]"}, "step of at least 1"},
		{"two steps", cronIn("", vixie, "*/2/3 0 * * *"), []string{"cron[0]"}, "step of at least 1"},
		{"range of three", cronIn("", vixie, "1-2-3 0 * * *"), []string{"cron[0]"}, "is no minute"},
		{"stepped week end", cronIn("", vixie, "0 0 * * FRI-MON/2"), []string{"cron[0]"}, "ambiguous"},
		{"unknown macro", cronIn("", vixie, "@reboot"), []string{"cron[0]"}, "unknown macro"},
		{"every among others", cronIn("", vixie, "0 0 * * *", "@every 1h"), []string{"cron[1]"}, "only expression"},
		{"every without duration", cronIn("", vixie, "@every"), []string{"cron[0]"}, "duration"},
		{"every day and number", cronIn("", vixie, "@every 7d1"), []string{"cron[0]"}, "7d"},
		{"every zero", cronIn("", vixie, "@every 0s"), []string{"cron[0]"}, "positive"},
		{"every in a bad zone", cronIn("Nowhere", vixie, "@every 1s"), []string{"time_zone"}, "unknown"},
		{"node's own zone", cronIn("Local", vixie, "0 0 * * *"), []string{"time_zone"}, "unknown"},
		{"file that is no zone", cronIn("localtime", vixie, "0 0 * * *"), []string{"time_zone"}, "unknown"},
		{"leap-second zone", cronIn("right/Europe/Berlin", vixie, "0 0 * * *"), []string{"time_zone"}, "unknown"},
		{"path", cronIn("Europe/../../../etc/passwd", vixie, "0 0 * * *"), []string{"time_zone"}, "unknown"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, err := Compile(c.spec, created, 7)
			if err == nil {
				t.Fatalf("accepted, next %v", Upcoming(s, created, 1, NewBudget(5)))
			}
			if got := faults(t, err); !slices.Equal(got, c.fields) {
				t.Errorf("fields %q, want %q (%v)", got, c.fields, err)
			}
			if !strings.Contains(err.Error(), c.reason) {
				t.Errorf("%q does not say %q", err, c.reason)
			}
		})
	}
}

func TestCompileAccepts(t *testing.T) {
	at := utc("2026-06-01T00:00:00Z")
	cases := []struct {
		name string
		spec Spec
		kind Kind
		next string // after created, "" for never
	}{
		{"none", Spec{}, KindNone, ""},
		{"once", Spec{Kind: KindOnce, At: at}, KindOnce, "2026-06-01T00:00:00Z"},
		{"once in the past", Spec{Kind: KindOnce, At: created}, KindOnce, ""},
		{"once in any zone, rounded up to ms", Spec{Kind: KindOnce, At: at.Add(1999999).In(time.FixedZone("", 3600))}, KindOnce, "2026-06-01T00:00:00.002Z"},
		{"every", cronIn("Europe/Berlin", vixie, "@every 1h30m"), KindInterval, "2026-01-01T01:30:00Z"},
		{"every, spaced", cronIn("", vixie, " @every  250ms "), KindInterval, "2026-01-01T00:00:00.25Z"},
		{"yearly", cronIn("", vixie, "@yearly"), KindCron, "2027-01-01T00:00:00Z"},
		{"annually", cronIn("", vixie, "@annually"), KindCron, "2027-01-01T00:00:00Z"},
		{"monthly", cronIn("", vixie, "@monthly"), KindCron, "2026-02-01T00:00:00Z"},
		{"weekly", cronIn("", vixie, "@weekly"), KindCron, "2026-01-04T00:00:00Z"},
		{"daily", cronIn("", vixie, "@daily"), KindCron, "2026-01-02T00:00:00Z"},
		{"midnight", cronIn("Asia/Kathmandu", vixie, "@midnight"), KindCron, "2026-01-01T18:15:00Z"},
		{"hourly with seconds", Spec{Kind: KindCron, Seconds: true, Cron: []string{"@hourly"}}, KindCron, "2026-01-01T01:00:00Z"},
		{"seconds", Spec{Kind: KindCron, Seconds: true, Cron: []string{"*/20 5 * * * *"}}, KindCron, "2026-01-01T00:05:00Z"},
		{"tabs and names", cronIn("", vixie, "\t0\t9 ? mar-APR,DEC Tue "), KindCron, "2026-03-03T09:00:00Z"},
		{"wrapped range", cronIn("", vixie, "0 22-2/2 * * FRI-MON"), KindCron, "2026-01-02T00:00:00Z"},
		{"union takes the first", cronIn("", vixie, "0 9 * * *", "30 8 * * *", "0 9 1 * *"), KindCron, "2026-01-01T08:30:00Z"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := compile(t, c.spec, created)
			if s.Kind() != c.kind {
				t.Errorf("kind %v, want %v", s.Kind(), c.kind)
			}
			got, ok := s.Next(created)
			if c.next == "" {
				if ok {
					t.Errorf("Next = %v, want none", got)
				}
			} else if !ok || !got.Equal(utc(c.next)) || got.Location() != time.UTC {
				t.Errorf("Next = %v, %v; want %s", got, ok, c.next)
			}
		})
	}
}

func TestSpecEqual(t *testing.T) {
	at := utc("2026-06-01T00:00:00Z")
	base := func() Spec {
		return Spec{Kind: KindCron, At: at, Every: 1, Cron: []string{"a"}, TimeZone: "z", StartAt: at, EndAt: at}
	}
	same := base()
	same.At = at.In(time.FixedZone("", 3600))
	if !base().Equal(same) {
		t.Error("the same instant in another zone differs")
	}
	if !(Spec{}).Equal(Spec{Cron: []string{}}) {
		t.Error("nil and empty Cron differ")
	}
	for i, edit := range []func(*Spec){
		func(s *Spec) { s.Kind = KindOnce },
		func(s *Spec) { s.At = at.Add(1) },
		func(s *Spec) { s.Every = 2 },
		func(s *Spec) { s.FixedDelay = true },
		func(s *Spec) { s.Cron = []string{"b"} },
		func(s *Spec) { s.TimeZone = "" },
		func(s *Spec) { s.Seconds = true },
		func(s *Spec) { s.Gap = GapSkip },
		func(s *Spec) { s.Repeat = RepeatLast },
		func(s *Spec) { s.Exclude.Cron = []string{"* * * * *"} },
		func(s *Spec) { s.Exclude.Dates = []string{"12-25"} },
		func(s *Spec) { s.Exclude.Windows = []string{"Sat"} },
		func(s *Spec) { s.Exclude.Periods = []Period{{From: at, To: at.Add(1)}} },
		func(s *Spec) { s.Jitter = time.Second },
		func(s *Spec) { s.MaxRuns = 1 },
		func(s *Spec) { s.StartAt = time.Time{} },
		func(s *Spec) { s.EndAt = time.Time{} },
	} {
		s := base()
		if edit(&s); s.Equal(base()) {
			t.Errorf("edit %d not noticed", i)
		}
	}
}

func TestNames(t *testing.T) {
	for want, got := range map[string]string{
		"none": KindNone.String(), "once": KindOnce.String(), "interval": KindInterval.String(), "cron": KindCron.String(),
		"shift/first": vixie.String(), "skip/first": skip.String(), "shift/both": both.String(), "shift/last": last.String(),
		"invalid": Kind(77).String(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestSeeded: a spec that is not seeded comes to the same with any seed.
func TestSeeded(t *testing.T) {
	for name, c := range map[string]struct {
		spec   Spec
		seeded bool
	}{
		"once":            {Spec{Kind: KindOnce, At: created}, false},
		"none":            {Spec{}, false},
		"interval":        {Spec{Kind: KindInterval, Every: time.Hour}, false},
		"jitter":          {Spec{Kind: KindOnce, At: created, Jitter: time.Hour}, true},
		"a number of its": {Spec{Kind: KindCron, Cron: []string{"H H * * *"}}, true},
		"excluded":        {Spec{Kind: KindInterval, Every: time.Hour, Exclude: Exclusions{Cron: []string{"* H * * *"}}}, true},
	} {
		times := map[time.Time]bool{}
		for seed := range uint64(100) {
			s, err := Compile(c.spec, created, seed)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			next, _ := s.Next(created.Add(-time.Millisecond))
			times[s.Jittered(next)] = true
		}
		if c.spec.Seeded() != c.seeded || (len(times) > 1) != c.seeded {
			t.Errorf("%s: %d times, seeded %v", name, len(times), c.spec.Seeded())
		}
	}
}
