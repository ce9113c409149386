package schedule

import (
	"testing"
	"time"
)

func FuzzCompile(f *testing.F) {
	for _, text := range []string{
		"* * * * *", "30 2 * * *", "0 0 29 2 */7", "0 0 L-3,15W * MON#2,SUN#L", "@every 1h", "@daily", "CRON_TZ=2025",
		"TZ= ", "0 22-2/2 * * FRI-MON/2", "*/20 5 * * * *", "30 2 8-14 3 */7", "@every 9999999h", ",,,, * * * *", "H(0-",
	} {
		f.Add(text, "Europe/Berlin", int64(1_700_000_000), false, uint8(0))
		f.Add(text, "America/New_York", int64(-62_135_596_800), true, uint8(1))
	}
	f.Add("0 1 1 1 *", "Europe/Berlin", int64(2_240_524_000), false, uint8(0))
	f.Add("0 0 * * *", "Pacific/Apia", int64(253_402_300_799), false, uint8(2))
	f.Fuzz(func(t *testing.T, text, zone string, at int64, seconds bool, policy uint8) {
		after := time.Unix(at, 0)
		s, err := Compile(Spec{Kind: KindCron, Cron: []string{text}, TimeZone: zone, Seconds: seconds, Gap: GapPolicy(policy % 2), Repeat: RepeatPolicy(policy / 2)}, after, uint64(at))
		if err != nil {
			faults(t, err)
			return
		}
		last := after
		for range 20 {
			n, ok := s.Next(last)
			if !ok {
				break
			}
			if !n.After(last) {
				t.Fatalf("Next(%v) = %v", last, n)
			}
			if p, ok := s.Prev(n); !ok || !p.Equal(n) {
				t.Fatalf("Prev(%v) = %v, %v", n, p, ok)
			}
			if p, ok := s.Prev(n.Add(-1)); ok && p.After(last) {
				t.Fatalf("%v lies between %v and its Next %v", p, last, n)
			}
			last = n
		}
	})
}

func BenchmarkNext(b *testing.B) {
	for _, c := range []struct{ name, zone, expr string }{
		{"utc", "", "*/5 * * * *"},
		{"berlin", "Europe/Berlin", "30 2 * * *"},
		{"leapday", "America/New_York", "0 0 29 2 */7"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := compile(b, cronIn(c.zone, vixie, c.expr), created)
			b.ReportAllocs()
			for b.Loop() {
				s.Next(created)
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	spec := cronIn("Europe/Berlin", vixie, "30 2 * * MON-FRI")
	b.ReportAllocs()
	for b.Loop() {
		compile(b, spec, created)
	}
}
