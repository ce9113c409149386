package reachability

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A server is pinged once a second, with a timeout of 6 s.
func TestServerReach(t *testing.T) {
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
		name     string
		noAnswer []span // no answers
		lost     []span
		silent   []span
	}{
		{name: "always answered"},
		{name: "a short pause", noAnswer: []span{{3, 8}}},
		{name: "every other answer", noAnswer: []span{{3, 4}, {5, 6}, {7, 8}, {9, 10}, {11, 12}, {13, 14}}},
		{name: "a long pause", noAnswer: []span{{3, 20}}, lost: []span{{8, 26}}, silent: []span{{8, 20}}},
		{name: "a long pause, then lost answers", noAnswer: []span{{3, 20}, {22, 24}}, lost: []span{{8, 26}},
			silent: []span{{8, 20}}},
		{name: "two pauses", noAnswer: []span{{3, 20}, {23, 28}}, lost: []span{{8, 34}},
			silent: []span{{8, 20}, {27, 28}}},
		{name: "four in five are lost", noAnswer: []span{{3, 7}, {8, 12}, {13, 17}, {18, 22}, {23, 27}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := serverReach{timeout: 6 * time.Second, answered: begin}
			for s := range 40 {
				if !in(s, tt.noAnswer) {
					r.recordAnswer(at(s))
				}
				lost, silent := r.updateReach(at(s))
				if lost != in(s, tt.lost) || silent != in(s, tt.silent) {
					t.Errorf("after %d s: lost %v, silent %v, want the opposite of one", s, lost, silent)
				}
			}
		})
	}
}

// Two primaries are pinged once a second, with a timeout of 6 s.
func TestRedisReach(t *testing.T) {
	begin := time.Now()
	type stretch struct {
		seconds int
		answer  string // of the primaries, each a letter
		others  []int
	}
	steady := stretch{10, "xy", []int{0}}
	tests := []struct {
		name   string
		then   []stretch
		want   reachState
		silent bool
		fresh  bool // there was no steady time before
	}{
		{name: "all answer", want: reachState{}},
		{name: "no answer within the timeout yet", fresh: true, then: []stretch{{5, "x", []int{0}}}, want: reachState{unreachable: -1}},
		{name: "never answered", fresh: true, then: []stretch{{7, "x", []int{0}}}, want: reachState{unreachable: 1}},
		{name: "this node loses one", then: []stretch{{11, "x", []int{0}}}, want: reachState{unreachable: 1}},
		{name: "this node loses one for long", then: []stretch{{12, "x", []int{0}}},
			want: reachState{withdrawn: true, unreachable: 1}},
		{name: "all nodes lose one", then: []stretch{{7, "x", []int{0}}, {30, "x", []int{1}}},
			want: reachState{unreachable: 1}},
		{name: "the others lose another one", then: []stretch{{7, "x", []int{0}}, {30, "x", []int{1, 2}}},
			want: reachState{unreachable: 1}},
		{name: "one other node reaches more", then: []stretch{{7, "x", []int{1, 0}}, {6, "x", []int{1, 0}}},
			want: reachState{withdrawn: true, unreachable: 1}},
		{name: "the others publish nothing", then: []stretch{{30, "x", []int{-1, -1}}}, want: reachState{unreachable: 1}},
		{name: "it answers for a moment", then: []stretch{{12, "x", []int{0}}, {5, "xy", []int{0}}},
			want: reachState{withdrawn: true, unreachable: 1}},
		{name: "it answers again", then: []stretch{{12, "x", []int{0}}, {7, "xy", []int{0}}}, want: reachState{}},
		{name: "the others lose it too", then: []stretch{{12, "x", []int{0}}, {1, "x", []int{1}}},
			want: reachState{unreachable: 1}},
		{name: "it answers seldom", then: []stretch{
			{9, "x", []int{0}}, {1, "xy", []int{0}}, {9, "x", []int{0}}, {1, "xy", []int{0}}, {9, "x", []int{0}},
		}, want: reachState{withdrawn: true, unreachable: 1}},
		{name: "it answers between two pauses", then: []stretch{
			{9, "x", []int{0}}, {6, "xy", []int{0}}, {9, "x", []int{0}},
		}, want: reachState{unreachable: 1}},
		{name: "it is not a primary any more", then: []stretch{{12, "x", []int{0}}, {7, "xz", []int{0}}},
			want: reachState{}},
		{name: "no primary answers any node", then: []stretch{{7, "", []int{2}}},
			want: reachState{withdrawn: true, unreachable: 2}, silent: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now, s, answers := begin, newRedisReach(6*time.Second, begin), map[string]time.Time{"x": {}, "y": {}}
			all := append([]stretch{steady}, tt.then...)
			if tt.fresh {
				all = tt.then
			}
			var is reachState
			var silent bool
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
					is, silent = s.assessReach(st.others, now)
				}
			}
			if is != tt.want || silent != tt.silent {
				t.Errorf("%+v, silent %v; want %+v, %v", is, silent, tt.want, tt.silent)
			}
		})
	}
}

// Three nodes ping three primaries, each at times of its own. One primary does not answer for a
// while: at its end some nodes count it as lost, and some do not. No node may withdraw.
func TestNoNodeWithdrawsAfterAShortStall(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	every, timeout, gossip := ttl/6, ttl*2/3, 100*time.Millisecond
	base := time.Now()
	type node struct {
		reach       *redisReach
		answers     map[string]time.Time
		published   []reachState
		publishedAt []time.Duration
	}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		stall := 5*time.Second + time.Duration(rng.Int64N(int64(5*time.Second)))
		type event struct {
			at      time.Duration
			node    int
			primary string // that answers; "": none does
		}
		var all []event
		for n := range 3 {
			for at := -time.Minute + time.Duration(rng.Int64N(int64(every))); at < time.Minute; at += every {
				all = append(all, event{at, n, ""})
				for _, p := range []string{"x", "y", "z"} {
					takes := time.Duration(rng.Int64N(int64(time.Millisecond)))
					switch answered := at + takes; {
					case p != "y" || answered < 0 || answered > stall:
						all = append(all, event{answered, n, p})
					case at > stall-time.Second: // the answer is still waited for
						all = append(all, event{stall + takes, n, p})
					}
				}
			}
		}
		slices.SortFunc(all, func(a, b event) int { return cmp.Compare(a.at, b.at) })
		var nodes [3]node
		for i := range nodes {
			nodes[i] = node{
				reach:     newRedisReach(timeout, base.Add(-time.Minute)),
				answers:   map[string]time.Time{"x": {}, "y": {}, "z": {}},
				published: []reachState{{unreachable: -1}}, publishedAt: []time.Duration{-time.Hour},
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
					received, _ := slices.BinarySearch(o.publishedAt, h.at-gossip)
					others = append(others, o.published[max(0, received-1)].unreachable)
				}
			}
			n.reach.recordAnswers(n.answers, now)
			is, _ := n.reach.assessReach(others, now)
			if is.withdrawn {
				t.Fatalf("seed %d: node %d withdrew %v after a stall of %v", seed, h.node, h.at-stall, stall)
			}
			if is != n.published[len(n.published)-1] {
				n.published, n.publishedAt = append(n.published, is), append(n.publishedAt, h.at)
			}
		}
	}
}
