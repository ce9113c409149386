package node

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestReach asks once a second, with a patience of 6 s.
func TestReach(t *testing.T) {
	begin := time.Now()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	type span [2]int // of seconds, the last one exclusive
	in := func(s int, all []span) bool {
		for _, x := range all {
			if s >= x[0] && s < x[1] {
				return true
			}
		}
		return false
	}
	tests := []struct {
		name   string
		silent []span // no answers
		lost   []span
		dark   []span
	}{
		{name: "always answered"},
		{name: "shortly away", silent: []span{{3, 8}}},
		{name: "every other answer", silent: []span{{3, 4}, {5, 6}, {7, 8}, {9, 10}, {11, 12}, {13, 14}}},
		{name: "away", silent: []span{{3, 20}}, lost: []span{{8, 26}}, dark: []span{{8, 20}}},
		{name: "away and back, with answers lost", silent: []span{{3, 20}, {22, 24}}, lost: []span{{8, 26}},
			dark: []span{{8, 20}}},
		{name: "away and back and away", silent: []span{{3, 20}, {23, 28}}, lost: []span{{8, 34}},
			dark: []span{{8, 20}, {27, 28}}},
		{name: "four in five are lost", silent: []span{{3, 7}, {8, 12}, {13, 17}, {18, 22}, {23, 27}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := serverReach{timeout: 6 * time.Second, answered: begin}
			for s := range 40 {
				if !in(s, tt.silent) {
					r.recordAnswer(at(s))
				}
				lost, dark := r.updateReach(at(s))
				if lost != in(s, tt.lost) || dark != in(s, tt.dark) {
					t.Errorf("after %d s: lost %v, dark %v, want the opposite of one", s, lost, dark)
				}
			}
		})
	}
}

// TestSight has two primaries asked once a second, with a patience of 6 s.
func TestSight(t *testing.T) {
	begin := time.Now()
	type stretch struct {
		seconds int
		answer  string // of the primaries, each a letter
		others  []int
	}
	steady := stretch{10, "xy", []int{0}}
	tests := []struct {
		name  string
		then  []stretch
		want  reachState
		dark  bool
		fresh bool // there was no steady time before
	}{
		{name: "all answer", want: reachState{}},
		{name: "not known yet", fresh: true, then: []stretch{{5, "x", []int{0}}}, want: reachState{unreachable: -1}},
		{name: "never answered", fresh: true, then: []stretch{{7, "x", []int{0}}}, want: reachState{unreachable: 1}},
		{name: "one is gone for this node", then: []stretch{{11, "x", []int{0}}}, want: reachState{unreachable: 1}},
		{name: "one is gone for this node for long", then: []stretch{{12, "x", []int{0}}},
			want: reachState{withdrawn: true, unreachable: 1}},
		{name: "one is gone for all", then: []stretch{{7, "x", []int{0}}, {30, "x", []int{1}}},
			want: reachState{unreachable: 1}},
		{name: "another one is gone for the others", then: []stretch{{7, "x", []int{0}}, {30, "x", []int{1, 2}}},
			want: reachState{unreachable: 1}},
		{name: "one other sees more", then: []stretch{{7, "x", []int{1, 0}}, {6, "x", []int{1, 0}}},
			want: reachState{withdrawn: true, unreachable: 1}},
		{name: "the others do not say", then: []stretch{{30, "x", []int{-1, -1}}}, want: reachState{unreachable: 1}},
		{name: "it is back for a moment", then: []stretch{{12, "x", []int{0}}, {5, "xy", []int{0}}},
			want: reachState{withdrawn: true, unreachable: 1}},
		{name: "it is back", then: []stretch{{12, "x", []int{0}}, {7, "xy", []int{0}}}, want: reachState{}},
		{name: "the others lose it too", then: []stretch{{12, "x", []int{0}}, {1, "x", []int{1}}},
			want: reachState{unreachable: 1}},
		{name: "it answers once in a while", then: []stretch{
			{9, "x", []int{0}}, {1, "xy", []int{0}}, {9, "x", []int{0}}, {1, "xy", []int{0}}, {9, "x", []int{0}},
		}, want: reachState{withdrawn: true, unreachable: 1}},
		{name: "it answers again between two silences", then: []stretch{
			{9, "x", []int{0}}, {6, "xy", []int{0}}, {9, "x", []int{0}},
		}, want: reachState{unreachable: 1}},
		{name: "it is no primary any more", then: []stretch{{12, "x", []int{0}}, {7, "xz", []int{0}}},
			want: reachState{}},
		{name: "nothing answers anybody", then: []stretch{{7, "", []int{2}}},
			want: reachState{withdrawn: true, unreachable: 2}, dark: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now, s, answers := begin, newRedisReach(6*time.Second, begin), map[string]time.Time{"x": {}, "y": {}}
			all := append([]stretch{steady}, tt.then...)
			if tt.fresh {
				all = tt.then
			}
			var is reachState
			var dark bool
			for _, st := range all {
				for range st.seconds {
					now = now.Add(time.Second)
					for _, name := range st.answer {
						if name == 'z' {
							delete(answers, "y")
						}
						answers[string(name)] = now
					}
					s.recordAnswers(answers, now)
					is, dark = s.assessReach(st.others, now)
				}
			}
			if is != tt.want || dark != tt.dark {
				t.Errorf("%+v, dark %v; want %+v, %v", is, dark, tt.want, tt.dark)
			}
		})
	}
}

// TestAStallThatIsOverPutsNobodyAside lets three nodes ask three primaries, each in a
// rhythm of its own, of which one answers nothing for a while: some of them have given it
// up by then, and some have not.
func TestAStallThatIsOverPutsNobodyAside(t *testing.T) {
	const ttl = 10 * time.Second
	every, patience, gossip := ttl/6, ttl*2/3, 100*time.Millisecond
	base := time.Now()
	type node struct {
		sight   *redisReach
		answers map[string]time.Time
		told    []reachState    // one after the other
		at      []time.Duration // when each was
	}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		stall := 5*time.Second + time.Duration(rng.Int64N(int64(5*time.Second)))
		type happening struct {
			at      time.Duration
			node    int
			primary string // that answers; "": none does
		}
		var all []happening
		for n := range 3 {
			for at := -time.Minute + time.Duration(rng.Int64N(int64(every))); at < time.Minute; at += every {
				all = append(all, happening{at, n, ""})
				for _, p := range []string{"x", "y", "z"} {
					takes := time.Duration(rng.Int64N(int64(time.Millisecond)))
					switch answered := at + takes; {
					case p != "y" || answered < 0 || answered > stall:
						all = append(all, happening{answered, n, p})
					case at > stall-time.Second: // the answer is still waited for
						all = append(all, happening{stall + takes, n, p})
					}
				}
			}
		}
		slices.SortFunc(all, func(a, b happening) int { return cmp.Compare(a.at, b.at) })
		var nodes [3]node
		for i := range nodes {
			nodes[i] = node{
				sight:   newRedisReach(patience, base.Add(-time.Minute)),
				answers: map[string]time.Time{"x": {}, "y": {}, "z": {}},
				told:    []reachState{{unreachable: -1}}, at: []time.Duration{-time.Hour},
			}
		}
		for _, h := range all {
			n, now := &nodes[h.node], base.Add(h.at)
			if h.primary != "" {
				n.answers[h.primary] = now
			}
			var others []int
			for i := range nodes {
				if o := &nodes[i]; i != h.node {
					heard, _ := slices.BinarySearch(o.at, h.at-gossip)
					others = append(others, o.told[max(0, heard-1)].unreachable)
				}
			}
			n.sight.recordAnswers(n.answers, now)
			is, _ := n.sight.assessReach(others, now)
			if is.withdrawn {
				t.Fatalf("seed %d: node %d stands aside %v after a stall of %v", seed, h.node, h.at-stall, stall)
			}
			if is != n.told[len(n.told)-1] {
				n.told, n.at = append(n.told, is), append(n.at, h.at)
			}
		}
	}
}
