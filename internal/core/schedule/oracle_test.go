package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The oracle walks every minute of a year and asks of each whether a plain
// reading of the rules makes it nominal. It shares no code with the package:
// it reads the expression itself, and takes from a zone only the wall clock.

// naive is an expression of numbers, lists, ranges, stars and steps as arrays.
type naive struct {
	minute, hour, dom, month, dow [60]bool
	and, wild                     bool
}

func readNaive(expr string) naive {
	w := strings.Fields(expr)
	return naive{
		minute: readField(w[0], 0, 59), hour: readField(w[1], 0, 23),
		dom: readField(w[2], 1, 31), month: readField(w[3], 1, 12), dow: readField(w[4], 0, 6),
		and:  w[2][0] == '*' || w[4][0] == '*',
		wild: w[0][0] == '*' || w[1][0] == '*',
	}
}

func readField(text string, low, high int) (set [60]bool) {
	for item := range strings.SplitSeq(text, ",") {
		span, stepText, stepped := strings.Cut(item, "/")
		from, to, step := low, high, 1
		if stepped {
			step, _ = strconv.Atoi(stepText)
		}
		if span != "*" {
			a, b, ranged := strings.Cut(span, "-")
			from, _ = strconv.Atoi(a)
			to = from
			if ranged {
				to, _ = strconv.Atoi(b)
			} else if stepped {
				to = high
			}
		}
		for v := from; v <= to; v += step {
			set[v] = true
		}
	}
	return set
}

// wall is what a wall clock shows, as minutes since 1970 on that wall.
type wall struct {
	minutes   int64
	hour, min uint8
	dom, mon  uint8
	dow       uint8
}

func readWall(t time.Time) wall {
	_, off := t.Zone()
	return wall{
		minutes: (t.Unix() + int64(off)) / 60,
		hour:    uint8(t.Hour()), min: uint8(t.Minute()),
		dom: uint8(t.Day()), mon: uint8(t.Month()), dow: uint8(t.Weekday()),
	}
}

func (n *naive) matches(w wall) bool {
	if !n.minute[w.min] || !n.hour[w.hour] || !n.month[w.mon] {
		return false
	}
	if n.and {
		return n.dom[w.dom] && n.dow[w.dow]
	}
	return n.dom[w.dom] || n.dow[w.dow]
}

// nominal lists, by policy, the minutes (since 1970, UTC) that are nominal;
// walls[i] is the wall at minute start+i.
func (n *naive) nominal(start int64, walls []wall) map[dst][]int64 {
	out := map[dst][]int64{}
	// soonest[i] is the least that the wall shows after minute i.
	soonest := make([]int64, len(walls))
	soonest[len(walls)-1] = 1 << 62
	for i := len(walls) - 1; i > 0; i-- {
		soonest[i-1] = min(walls[i].minutes, soonest[i])
	}
	shown := walls[0].minutes - 1 // the latest the wall has shown
	for i, w := range walls {
		match, missed := n.matches(w), w.minutes-shown-1
		again := missed < 0
		if match || missed > 0 {
			owed := n.owes(shown, missed)
			for _, p := range everyDST {
				counts := n.wild || p.repeat == RepeatBoth
				switch {
				case p.repeat == RepeatFirst:
					counts = counts || !again
				case p.repeat == RepeatLast:
					counts = counts || soonest[i] > w.minutes
				}
				if match && counts || owed && p.gap != GapSkip {
					out[p] = append(out[p], start+int64(i))
				}
			}
		}
		shown = max(shown, w.minutes)
	}
	return out
}

// owes reports whether one of the missed minutes after shown is to be made up for.
func (n *naive) owes(shown, missed int64) bool {
	if n.wild || missed > 180 {
		return false
	}
	for m := shown + 1; m <= shown+missed; m++ {
		if n.matches(readWall(time.Unix(m*60, 0).UTC())) {
			return true
		}
	}
	return false
}

var oracleZones = []struct {
	zone string
	year int
}{
	{"America/New_York", 2026}, {"Europe/Berlin", 2026}, {"Europe/Berlin", 2040},
	{"Australia/Lord_Howe", 2026}, {"Asia/Beirut", 2026}, {"America/Sao_Paulo", 2018},
	{"Pacific/Apia", 2011}, {"Africa/Casablanca", 2026}, {"Europe/Dublin", 2026},
	{"Pacific/Chatham", 2026}, {"Asia/Kathmandu", 1986}, {"America/St_Johns", 2009},
	{"Africa/Cairo", 2026}, {"Antarctica/Troll", 2026}, {"Pacific/Kwajalein", 1993},
	{"Asia/Pyongyang", 2018}, {"America/Caracas", 2016}, {"Europe/Istanbul", 2016},
	{"Asia/Gaza", 2023}, {"Australia/Lord_Howe", 2096}, {"UTC", 2028},
}

var oracleExpressions = []string{
	"* * * * *", "*/7 * * * *", "0 * * * *", "30 * * * *", "15,45 */2 * * *", "* 2 * * *",
	"0 0 * * *", "10 0 * * 0", "30 0 * * *", "0 1 * * *", "30 1 * * *", "45 1 * * *", "59 1 * * *",
	"0 2 * * *", "15 2 * * *", "30 2 * * *", "0,30 2,3 * * *", "0 3 * * *", "45 2-3 * * *",
	"0 0-23 * * *", "0-59 1 * * *", "5/20 1-4 * * *", "59 23 * * *", "0 12 * * 5", "0 12 30 12 *",
	"30 2 29 3 *", "30 1 1 11 *", "30 2 8 3 *", "15 2 4 10 *", "0 0 13 * 5", "0 2 */2 * 0", "30 1 29 2 *",
	"17 3 1,15 1-6 1-5", "0 0 31 * *", "0 20 31 12 *", "0 1 1 1 *",
	"0 */24 * * *", "*/60 * * * *", "41-59/24 5 * * 5", "30 2/30 * * *", "0 0 */31 * *", "0 12 */40 */12 1", "10 2 * * 1-6/7",
}

func TestAgainstEveryMinute(t *testing.T) {
	for _, z := range oracleZones {
		t.Run(fmt.Sprintf("%s/%d", z.zone, z.year), func(t *testing.T) {
			loc, err := time.LoadLocation(z.zone)
			if err != nil {
				t.Fatal(err)
			}
			start := time.Date(z.year, 1, 1, 0, 0, 0, 0, time.UTC)
			first := start.Unix() / 60
			walls := make([]wall, (start.AddDate(1, 0, 0).Unix()-start.Unix())/60)
			var jumps []int64
			for i := range walls {
				walls[i] = readWall(time.Unix((first+int64(i))*60, 0).In(loc))
				if i > 0 && walls[i].minutes != walls[i-1].minutes+1 {
					jumps = append(jumps, first+int64(i))
				}
			}
			for _, expr := range oracleExpressions {
				n := readNaive(expr)
				want := n.nominal(first, walls)
				for _, p := range everyDST {
					if len(want[p]) == 0 {
						continue // refused: it has no instant
					}
					s := compile(t, cronIn(z.zone, p, expr), start)
					checkYear(t, s, fmt.Sprintf("%q %v", expr, p), first, int64(len(walls)), jumps, want[p])
				}
			}
		})
	}
}

// checkYear compares Next and Prev with the list at many instants: all around
// each jump of the clock, each nominal time of a short list, and random ones.
func checkYear(t *testing.T, s *Schedule, what string, first, length int64, jumps, want []int64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, uint64(first)))
	var probes []int64 // seconds
	for _, j := range jumps {
		for d := int64(-150); d <= 150; d += 10 {
			probes = append(probes, (j+d)*60, (j+d)*60-1)
		}
	}
	for range 40 {
		probes = append(probes, first*60+rng.Int64N(length*60))
	}
	for i := 0; i < len(want); i += 1 + len(want)/40 {
		probes = append(probes, want[i]*60-1, want[i]*60, want[i]*60+1)
	}
	for _, at := range probes {
		if at < first*60 || at >= (first+length)*60 {
			continue
		}
		// i is the index of the first nominal time after the probe.
		i, _ := slices.BinarySearch(want, floorDiv(at, 60)+1)
		probe := time.Unix(at, 0)
		if i < len(want) {
			if got, ok := s.Next(probe); !ok || got.Unix() != want[i]*60 {
				t.Fatalf("%s: Next(%v) = %v, want %v", what, probe.UTC(), got, time.Unix(want[i]*60, 0).UTC())
			}
		} else if got, ok := s.Next(probe); ok && got.Unix() < (first+length)*60 {
			t.Fatalf("%s: Next(%v) = %v, want none this year", what, probe.UTC(), got)
		}
		if i > 0 {
			if got, ok := s.Prev(probe); !ok || got.Unix() != want[i-1]*60 {
				t.Fatalf("%s: Prev(%v) = %v, want %v", what, probe.UTC(), got, time.Unix(want[i-1]*60, 0).UTC())
			}
		} else if got, ok := s.Prev(probe); ok && got.Unix() >= first*60 {
			t.Fatalf("%s: Prev(%v) = %v, want none this year", what, probe.UTC(), got)
		}
	}
}
