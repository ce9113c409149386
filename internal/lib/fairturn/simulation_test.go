package fairturn

import (
	"container/heap"
	"fmt"
	"testing"
	"time"
)

// simulation has calls in simulated time, without goroutines.
type simulation struct {
	turns   *Turns
	now     time.Duration
	events  events
	waiting []*simulatedWait
}

type simulatedWait struct {
	turn  chan struct{}
	began time.Duration
	start func(waited time.Duration)
}

// caller has made some calls in a simulation.
type caller struct {
	calls         int
	used, longest time.Duration
}

type event struct {
	at time.Duration
	do func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// simulatedTime is how long callers make calls.
const simulatedTime = time.Minute

func simulate(n, ofNamespace int) *simulation { return &simulation{turns: New(n, ofNamespace)} }

func (s *simulation) after(d time.Duration, do func()) {
	heap.Push(&s.events, event{s.now + d, do})
}

func (s *simulation) run() {
	for len(s.events) > 0 {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
}

// call makes one call after the other, a millisecond apart.
func (s *simulation) call(length time.Duration, holderOf func(call int) Holder) *caller {
	c := new(caller)
	var next func()
	next = func() {
		if s.now >= simulatedTime {
			return
		}
		h := holderOf(c.calls)
		s.take(h, func(waited time.Duration) {
			c.calls, c.used, c.longest = c.calls+1, c.used+length, max(c.longest, waited)
			s.after(length, func() {
				s.release(h, length)
				s.after(time.Millisecond, next)
			})
		})
	}
	s.after(0, next)
	return c
}

func (s *simulation) take(h Holder, start func(waited time.Duration)) {
	turn := s.turns.takeOrQueue(h)
	if turn == nil {
		start(0)
		return
	}
	s.waiting = append(s.waiting, &simulatedWait{turn, s.now, start})
}

func (s *simulation) release(h Holder, used time.Duration) {
	s.turns.Release(h, used)
	var still, starting []*simulatedWait
	for _, w := range s.waiting {
		select {
		case <-w.turn:
			starting = append(starting, w)
		default:
			still = append(still, w)
		}
	}
	s.waiting = still
	for _, w := range starting {
		w.start(s.now - w.began)
	}
}

// TestANamespaceGainsNothingByIdentities: a caller has half of the time beside one other namespace, however many
// identities call there.
func TestANamespaceGainsNothingByIdentities(t *testing.T) {
	const long, short = 300 * time.Millisecond, 20 * time.Millisecond
	for _, n := range []int{1, 20} {
		s := simulate(1, 1)
		victim := s.call(long, func(int) Holder { return identity("victim") })
		for i := range 2 * n {
			s.call(short, func(int) Holder { return Holder{"many", fmt.Sprint(i / 2)} })
		}
		s.run()
		if victim.used < simulatedTime*2/5 || victim.longest > time.Second {
			t.Errorf("beside %d identities, the caller had %v of %v, and waited up to %v", n, victim.used, simulatedTime,
				victim.longest)
		}
	}
}

// TestFreeTurnsOfOthersLeaveEqualParts: in a namespace whose callers wait for its only turn, one with short turns has its
// part of the time, also while an identity elsewhere uses turns that are free.
func TestFreeTurnsOfOthersLeaveEqualParts(t *testing.T) {
	const long, short, callers = 50 * time.Millisecond, time.Millisecond, 8
	for _, others := range []int{0, 20} {
		s := simulate(4, 1)
		for i := range 3 * callers {
			s.call(long, func(int) Holder { return Holder{"one", fmt.Sprint("greedy", i%3)} })
		}
		var light [callers]*caller
		for i := range light {
			light[i] = s.call(short, func(int) Holder { return Holder{"one", "light"} })
		}
		for i := range others {
			s.call(long, func(call int) Holder { return Holder{fmt.Sprint(i, "-", call), "elsewhere"} })
		}
		s.run()
		var used time.Duration
		for _, c := range light {
			used += c.used
		}
		if least := simulatedTime / 4 / 3; used < least {
			t.Errorf("beside %d callers elsewhere, the one with short turns had %v of its time, want %v", others, used, least)
		}
	}
}

// TestCallsWithoutANamespaceLeaveTurns: identities with many calls about several namespaces count as one caller each.
func TestCallsWithoutANamespaceLeaveTurns(t *testing.T) {
	const length, identities = time.Second, 10
	s := simulate(1, 1)
	for i := range 20 * identities {
		s.call(length, func(int) Holder { return Holder{Identity: fmt.Sprint("viewer", i%identities)} })
	}
	caller := s.call(length, func(int) Holder { return identity("caller") })
	s.run()
	if most := (identities + 3) * length; caller.longest > most || caller.calls < 4 {
		t.Errorf("%d calls waited up to %v, want %v at most", caller.calls, caller.longest, most)
	}
}
