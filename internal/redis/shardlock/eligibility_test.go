package shardlock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// readings plays readings of heartbeats, one every 400 ms, in a cluster whose view has a
// (this node) and the members given as name and process.
type readings struct {
	r    *eligibility
	v    sharding.View
	now  time.Time
	beat map[string]heartbeat
}

func newReadings(members ...string) *readings {
	o := Options{Node: "a", TTL: 10 * time.Second}
	x := &readings{r: newEligibility(o, "pa"), v: sharding.View{Self: "a"}, now: time.Unix(1000, 0), beat: map[string]heartbeat{}}
	x.see(append([]string{"a", "pa"}, members...)...)
	return x
}

func (x *readings) see(members ...string) {
	var list []sharding.Member
	for i := 0; i < len(members); i += 2 {
		list = append(list, sharding.Member{Name: members[i], Process: members[i+1]})
	}
	x.v = sharding.NewView(1, "a", list)
}

// give has a process give heartbeats from now on, under a node's name.
func (x *readings) give(process, node string) {
	x.beat[process] = heartbeat{known: true, period: 400 * time.Millisecond, ttl: 10 * time.Second, node: node}
}

// at puts an address for clients into the heartbeats of a process.
func (x *readings) at(process, address string) {
	l := x.beat[process]
	l.address = address
	x.beat[process] = l
}

func (x *readings) read(n int) {
	for range n {
		x.now = x.now.Add(400 * time.Millisecond)
		read := x.r.processesToRead(x.v)
		heard := map[string]heartbeat{}
		for _, p := range read {
			heard[p] = x.beat[p]
		}
		x.r.applyReadings(x.v, read, heard, x.now)
	}
}

func (x *readings) owners() []string { return slices.Sorted(maps.Keys(x.r.eligibleOwners())) }

func (x *readings) want(t *testing.T, what string, names ...string) {
	t.Helper()
	if got := x.owners(); !slices.Equal(got, names) {
		t.Errorf("%s: owners %v, want %v", what, got, names)
	}
}

func TestOwnersAreThoseWithAHeartbeat(t *testing.T) {
	x := newReadings("b", "pb", "c", "pc", "d", "")
	x.give("pb", "b")
	x.read(1)
	x.want(t, "one reading", "a", "b")
	x.give("pc", "c")
	x.read(1)
	x.want(t, "the next reading", "a", "b", "c")
	x.see("a", "pa", "b", "pb", "c", "another")
	x.read(1)
	if got := x.r.eligibleOwners()["c"]; got == "another" {
		t.Error("another process of c has no heartbeat")
	}
}

func TestHeartbeatThatEnds(t *testing.T) {
	x := newReadings("b", "pb")
	x.give("pb", "b")
	x.read(1)
	delete(x.beat, "pb")
	x.read(5)
	x.want(t, "missing for less than the grace", "a", "b")
	x.read(1)
	x.want(t, "missing for the grace", "a")
	x.give("pb", "b")
	x.read(9)
	x.want(t, "back for a moment", "a")
	x.read(1)
	x.want(t, "back for a third of a lock's life", "a", "b")
}

// A node whose Redis becomes slow while the heartbeats of the others are missing compares itself with them all
// the same: it cannot read that they are back.
func TestMembersOnceSeenStayKnown(t *testing.T) {
	x := newReadings("b", "pb", "c", "pc", "forger", "pf", "restarted", "old")
	x.give("pb", "b")
	x.give("pc", "c")
	x.give("old", "restarted")
	x.read(1)
	x.see("a", "pa", "b", "pb", "c", "pc", "forger", "pf", "restarted", "new")
	delete(x.beat, "pb")
	delete(x.beat, "pc")
	x.read(10)
	x.want(t, "the heartbeats of all others are missing", "a")
	want := map[string]string{"a": "pa", "b": "pb", "c": "pc"}
	if got := x.r.seenProcesses(); !maps.Equal(got, want) {
		t.Errorf("seen: %v, want %v", got, want)
	}
}

func TestStaleHeartbeat(t *testing.T) {
	for age, fresh := range map[time.Duration]bool{0: true, 6 * time.Second: true, 7 * time.Second: false} {
		l := heartbeat{known: true, period: 400 * time.Millisecond, ttl: 10 * time.Second, age: age}
		if l.isFresh() != fresh {
			t.Errorf("age %v: fresh is %t", age, l.isFresh())
		}
	}
}

// TestHeartbeatThatComesAndGoes: a process whose heartbeats are there for 4 s and gone for 4 s
// moves shards less and less often.
func TestHeartbeatThatComesAndGoes(t *testing.T) {
	x := newReadings("b", "pb")
	owned, changes := false, 0
	for range 100 {
		for _, there := range []bool{true, false} {
			delete(x.beat, "pb")
			if there {
				x.give("pb", "b")
			}
			for range 10 {
				x.read(1)
				if now := len(x.owners()) == 2; now != owned {
					owned, changes = now, changes+1
				}
			}
		}
	}
	if changes > 6 {
		t.Errorf("%d changes in 800 s", changes)
	}
}

// TestUnreadHeartbeatsChangeNothing: while Redis does not answer this node nothing is learnt, and
// when it answers again the others get time for their heartbeats.
func TestUnreadHeartbeatsChangeNothing(t *testing.T) {
	x := newReadings("b", "pb")
	x.give("pb", "b")
	x.read(1)
	x.see("a", "pa")
	x.see("a", "pa", "b", "pb")
	x.want(t, "b has left the view and is back, unread", "a", "b")
	x.now = x.now.Add(time.Minute)
	delete(x.beat, "pb")
	x.read(5)
	x.want(t, "just after Redis answers again", "a", "b")
	x.give("pb", "b")
	x.read(10)
	x.want(t, "later", "a", "b")
}

// TestNodesThatBeginTogetherMoveNothing: one that reads before the other has written its first
// heartbeat does not take the shards of that.
func TestNodesThatBeginTogetherMoveNothing(t *testing.T) {
	x := newReadings("b", "pb")
	x.read(1)
	if x.r.isSettled(x.now) {
		t.Error("the first reading is not complete")
	}
	x.give("pb", "b")
	x.read(3)
	if !x.r.isSettled(x.now) {
		t.Error("after three intervals it is")
	}
	x.want(t, "by then", "a", "b")
}

// TestOneProcessHasOneName: no member owns shards by the heartbeat of another one.
func TestOneProcessHasOneName(t *testing.T) {
	t.Run("another node's", func(t *testing.T) {
		x := newReadings("b", "pb", "evil", "pb", "worse", "pb")
		x.give("pb", "b")
		x.read(20)
		x.want(t, "named heartbeat", "a", "b")
	})
	t.Run("this node's", func(t *testing.T) {
		x := newReadings("evil", "pa")
		x.give("pa", "a")
		x.read(20)
		x.want(t, "this node's process", "a")
	})
	t.Run("one of the previous build", func(t *testing.T) {
		x := newReadings("old", "po")
		x.give("po", "")
		x.read(1)
		x.see("a", "pa", "evil", "po", "old", "po")
		x.read(20)
		x.want(t, "heartbeat without a name", "a", "old")
		x.see("a", "pa", "evil", "po")
		x.read(1)
		x.want(t, "old has left", "a", "evil")
	})
}

// TestManyMembersAreReadInTurn: a reading has a bounded size, and unknown members do not keep those with a
// heartbeat from being read.
func TestManyMembersAreReadInTurn(t *testing.T) {
	members := []string{}
	for i := range 200 {
		members = append(members, fmt.Sprintf("evil%03d", i), fmt.Sprintf("pe%03d", i))
	}
	for i := range 20 {
		members = append(members, fmt.Sprintf("n%02d", i), fmt.Sprintf("pn%02d", i))
	}
	x := newReadings(members...)
	for i := range 20 {
		x.give(fmt.Sprintf("pn%02d", i), fmt.Sprintf("n%02d", i))
	}
	for range 60 {
		if n := len(x.r.processesToRead(x.v)); n > 2*readingsAtOnce {
			t.Fatalf("%d are read at once", n)
		}
		x.read(1)
	}
	if n := len(x.owners()); n != 21 {
		t.Errorf("%d owners, want 21", n)
	}
	delete(x.beat, "pn07")
	x.read(20)
	if n := len(x.owners()); n != 20 {
		t.Errorf("%d owners after one has ended, want 20", n)
	}
}

// TestMembersByGossipAloneOwnNoShard: shards stay where they are, whatever such members report of themselves.
func TestMembersByGossipAloneOwnNoShard(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Granted(), 8)
	a, b := f.start("a"), f.start("b")
	f.see("a", "b")
	f.converged("a", "b")
	redistest.Eventually(f.t, patience, "heartbeats", func() error {
		for _, n := range []*testNode{a, b} {
			if got := len(n.KeyspaceMembers()); n.owners.Load() == nil || got != 2 {
				return fmt.Errorf("%s sees %d", n.name, got)
			}
		}
		return nil
	})
	lost := f.lossCount()
	for _, n := range []*testNode{a, b} {
		v := f.view(n.name, "a", "b")
		for i := range 12 {
			claimed := [...]string{"", newToken(), a.Process(), b.Process()}[i%4]
			v.Members = append(v.Members, sharding.Member{Name: fmt.Sprint("evil", i), PeerAddr: "127.0.0.1:1", Process: claimed})
		}
		n.SetView(sharding.NewView(2, n.name, v.Members))
	}
	settled := time.Now().Add(testTTL)
	redistest.Eventually(t, patience, "a life of a lock", func(context.Context) error {
		if time.Now().Before(settled) {
			return fmt.Errorf("until %v", settled)
		}
		return nil
	})
	f.converged("a", "b")
	for _, n := range []*testNode{a, b} {
		if got := n.KeyspaceMembers(); len(got) != 2 {
			t.Errorf("%s compares itself with %v", n.name, got)
		}
	}
	if n := f.lossCount() - lost; n > 0 {
		t.Errorf("%d shards moved", n)
	}
	f.noDoubleHolding()
}
