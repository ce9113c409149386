package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestHashSpread(t *testing.T) {
	minutes := map[int]int{}
	for seed := range uint64(6000) {
		s, err := Compile(cronIn("", vixie, "H * * * *"), created, seed)
		if err != nil {
			t.Fatal(err)
		}
		times := Upcoming(s, created, 3, NewBudget(5))
		for _, at := range times[1:] {
			if at.Minute() != times[0].Minute() {
				t.Fatalf("seed %d: minutes %v", seed, times)
			}
		}
		minutes[times[0].Minute()]++
	}
	for m := range 60 {
		if n := minutes[m]; n < 50 || n > 150 {
			t.Errorf("%d of 6000 jobs run in minute %d, want about 100", n, m)
		}
	}
}

// TestHashStaysWithinItsField holds every form against a plain reading: which
// values may come, and how far apart.
func TestHashStaysWithinItsField(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		low := rapid.IntRange(0, 58).Draw(t, "low")
		high := rapid.IntRange(low, 59).Draw(t, "high")
		step := rapid.IntRange(1, high-low+1).Draw(t, "step")
		s, err := Compile(cronIn("", vixie, fmt.Sprintf("H(%d-%d)/%d * * * *", low, high, step)), created, seed)
		if err != nil {
			t.Fatal(err)
		}
		var seen []int
		for _, at := range Upcoming(s, created.Add(-time.Minute), 60, NewBudget(5)) {
			if at.Hour() == created.Hour() && at.Day() == created.Day() {
				seen = append(seen, at.Minute())
			}
		}
		if len(seen) == 0 || seen[0] < low || seen[0] >= low+step || seen[len(seen)-1] > high || seen[len(seen)-1]+step <= high {
			t.Fatalf("H(%d-%d)/%d gave %v", low, high, step, seen)
		}
		for i := 1; i < len(seen); i++ {
			if seen[i]-seen[i-1] != step {
				t.Fatalf("H(%d-%d)/%d gave %v", low, high, step, seen)
			}
		}
	})
}

func TestHashOfADateExistsInEveryMonth(t *testing.T) {
	for seed := range uint64(300) {
		s, err := Compile(cronIn("", vixie, "H H H * *"), created, seed)
		if err != nil {
			t.Fatal(err)
		}
		for i, at := range Upcoming(s, created.Add(-time.Second), 14, NewBudget(5)) {
			if want := created.AddDate(0, i, 0).Month(); at.Month() != want {
				t.Fatalf("seed %d: run %d is in %v, want %v", seed, i, at.Month(), want)
			}
		}
	}
}

// The numbers of H and of jitter are part of what is promised: another version
// must give the same.
func TestHashesStayTheSame(t *testing.T) {
	words := strings.Fields("H H H H H H(1-5)")
	if err := resolveHash(words, 42); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(words, " "), goldenHash; got != want {
		t.Errorf("H of seed 42 is %q, was %q", got, want)
	}
	s, err := Compile(Spec{Kind: KindInterval, Every: time.Minute, Jitter: 20 * time.Second}, created, 42)
	if err != nil {
		t.Fatal(err)
	}
	nominal := created.Add(time.Minute)
	if got := s.Jittered(nominal).Sub(nominal); got != goldenJitter {
		t.Errorf("jitter of seed 42 is %v, was %v", got, goldenJitter)
	}
}

func TestJitterStaysBelowTheNextTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := Spec{Kind: KindInterval, Every: time.Duration(rapid.IntRange(1, 100_000).Draw(t, "every")) * time.Millisecond}
		if rapid.Bool().Draw(t, "cron") {
			spec = cronIn("Europe/Berlin", last, "30 2 * * *", "*/7 3 * * *")
		}
		spec.Jitter = time.Duration(rapid.IntRange(0, 86_400_000).Draw(t, "jitter")) * time.Millisecond
		s, err := Compile(spec, created, rapid.Uint64().Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		nominal, _ := s.Next(created.Add(time.Duration(rapid.IntRange(0, 1e9).Draw(t, "after")) * time.Millisecond))
		next, _ := s.Next(nominal)
		due := s.Jittered(nominal)
		if due.Before(nominal) || !due.Before(next) || due.Sub(nominal) > spec.Jitter {
			t.Fatalf("nominal %v, due %v, next %v, jitter %v", nominal, due, next, spec.Jitter)
		}
		if again := s.Jittered(nominal); !again.Equal(due) {
			t.Fatalf("computed %v and %v", due, again)
		}
	})
}

func TestRemarks(t *testing.T) {
	for _, c := range []struct {
		expr  string
		p     dst
		after string
		want  []string
	}{
		{"30 2 * * *", vixie, "2026-03-28T12:00:00Z", []string{"02:30 does not exist on this day: runs at 03:00", ""}},
		{"30 2 * * *", both, "2026-10-24T12:00:00Z", []string{"first pass of 02:30, which comes twice", "second pass of 02:30, which comes twice", ""}},
		{"30 2 * * *", last, "2026-10-24T12:00:00Z", []string{"second pass of 02:30, which comes twice", ""}},
		{"0 12 * * *", vixie, "2026-03-28T12:00:00Z", []string{"", ""}},
	} {
		s := compile(t, cronIn("Europe/Berlin", c.p, c.expr), created)
		for i, at := range Upcoming(s, utc(c.after), len(c.want), NewBudget(5)) {
			if got := s.DescribeShift(at); got != c.want[i] {
				t.Errorf("%s %v at %v: %q, want %q", c.expr, c.p, at, got, c.want[i])
			}
		}
	}
	if s := compile(t, Spec{Kind: KindInterval, Every: time.Hour}, created); s.DescribeShift(created) != "" {
		t.Error("an interval has a remark")
	}
}

const (
	goldenHash   = "12 25 3 2 9 5"
	goldenJitter = 8424 * time.Millisecond
)
