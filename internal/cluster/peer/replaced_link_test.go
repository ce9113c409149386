package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

const replacedWarning = "node opened another link"

// withLog makes a node log to x.
func withLog(x *syncLog) func(*Options) {
	return func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(x, nil)) }
}

// A link that another one of the same name replaced is opened again, whether the other one ends or not: the node's
// demand counts, and permits reach it.
func TestAReplacedLinkIsOpenedAgain(t *testing.T) {
	for _, ends := range []bool{true, false} {
		t.Run(fmt.Sprintf("the other one ends: %v", ends), func(t *testing.T) {
			log := &syncLog{}
			n := startSecured(t, "n", "127.0.0.1:0", nil, insecure.NewCredentials(), withLog(log))
			n1 := start(t, "n1", "127.0.0.1:0", nil)
			n1.peer.OfferSlots(demandOf(3))
			for _, x := range []*node{n, n1} {
				x.peer.SetView(sharding.NewView(1, x.name, members(n, n1)))
			}
			n.waitFor(fmt.Sprintf("demand n1 %v", demandOf(3)))
			other := dial(t, n)
			send(t, other, helloOf("n1"))
			send(t, other, cancelToPB("ns/j", 1))
			n.waitFor("cancel ns/j 1")
			if ends {
				_ = other.CloseSend()
			}
			n.waitFor(fmt.Sprintf("demand n1 %v", demandOf(3)))
			if n.peer.SendPermits("n1", permitsOf(1)) != 1 {
				t.Error("a permit is not sent to n1")
			}
			n1.waitFor("permits n 1")
			if log.count(replacedWarning) != 1 || log.count("node=n1 address=127.0.0.1:") < 1 ||
				log.count("earlier_address=127.0.0.1:") != 1 {
				t.Errorf("logged: %s", log)
			}
		})
	}
}

// Two processes of one name replace each other's links ever more slowly, and one line is logged about it.
func TestTwoProcessesOfOneNameAreNotLoud(t *testing.T) {
	log, begun := &syncLog{}, time.Now()
	n := startSecured(t, "n", "127.0.0.1:0", nil, insecure.NewCredentials(), withLog(log))
	one, two := start(t, "x", "127.0.0.1:0", nil), start(t, "x", "127.0.0.1:0", nil)
	n.peer.SetView(sharding.NewView(1, "n", members(n, one)))
	for _, x := range []*node{one, two} {
		x.peer.SetView(sharding.NewView(1, "x", members(n, x)))
	}
	redistest.Eventually(t, redistest.Patience, "ten links", func(context.Context) error {
		if opened := n.count("demand x []"); opened < 10 {
			return fmt.Errorf("%d", opened)
		}
		return nil
	})
	// Each has waited four times by then, one after the other, from half of retryMin on, and twice as long every time.
	if passed := time.Since(begun); passed < 2*15*retryMin/2 {
		t.Errorf("ten links in %v", passed)
	}
	if times := log.count(replacedWarning); times != 1 {
		t.Errorf("logged %d times", times)
	}
}

func TestOnlyEarlyReplacementsDelayTheNextLink(t *testing.T) {
	for _, c := range []struct {
		err  error
		open time.Duration
		want bool
	}{
		{errReplaced, 0, true}, {errReplaced, 2 * retryMax, true}, {errReplaced, 10 * retryMax, false},
		{errStopping, 0, false}, {errors.New("reset"), 0, false}, {nil, 0, false},
	} {
		if got := wasReplacedEarly(c.err, c.open); got != c.want {
			t.Errorf("%v after %v: %v", c.err, c.open, got)
		}
	}
}

// Replacements that are not logged are counted in the next line.
func TestReplacementsAreLoggedOncePerMinute(t *testing.T) {
	log := &syncLog{}
	n := startSecured(t, "n", "127.0.0.1:0", nil, insecure.NewCredentials(), withLog(log))
	l := &servedLink{node: "x", replaced: make(chan struct{})}
	for i := range 5 {
		later := &servedLink{node: "x", replaced: make(chan struct{})}
		if i == 4 {
			l.replacementsLogged = l.replacementsLogged.Add(-replacementLogPause)
		}
		n.peer.endReplaced(l, later)
		l = later
	}
	if log.count("count=1\n") != 1 || log.count("count=4\n") != 1 || log.count(replacedWarning) != 2 {
		t.Errorf("logged: %s", log)
	}
}

// endHandler runs a function while the end of a link is passed on.
type endHandler struct {
	*node
	meanwhile func()
}

func (h *endHandler) OnLinkDown(from string) {
	h.meanwhile()
	h.node.OnLinkDown(from)
}

// The end of a link that is being passed on does not void the demand of a link that is opened meanwhile.
func TestTheEndOfALinkComesBeforeTheNextOne(t *testing.T) {
	h := &endHandler{}
	n := startSecured(t, "n", "127.0.0.1:0", nil, insecure.NewCredentials(), func(o *Options) {
		h.node, _ = o.Handler.(*node)
		o.Handler = h
	})
	n.hasMembers("x")
	for i := range 20 {
		first := &servedLink{node: "x", replaced: make(chan struct{})}
		second := &servedLink{node: "x", replaced: make(chan struct{})}
		n.peer.addServedLink(first)
		var opened sync.WaitGroup
		h.meanwhile = func() {
			opened.Go(func() {
				n.peer.addServedLink(second)
				n.peer.receiveMessage(second, demandToPB(demandOf(i)))
			})
			redistest.Eventually(t, redistest.Patience, "the second link", func() bool { return n.peer.isCurrent(second) })
		}
		n.peer.removeServedLink(first)
		opened.Wait()
		n.mu.Lock()
		heard := strings.Join(n.heard, ", ")
		n.heard = nil
		n.mu.Unlock()
		if want := fmt.Sprintf("down x, demand x %v", demandOf(i)); heard != want {
			t.Fatalf("%s, want %s", heard, want)
		}
		h.meanwhile = func() {}
		n.peer.removeServedLink(second)
		n.waitFor("down x")
	}
}

// A link may be opened before gossip has its node: the latest demand is passed on when it is a member, and permits
// are sent from then on, also after gossip has lost it.
func TestDemandOfNonMembersIsHeld(t *testing.T) {
	n := start(t, "n", "127.0.0.1:0", nil)
	s := dial(t, n)
	send(t, s, helloOf("x"))
	for i := range 3 {
		send(t, s, demandToPB(demandOf(i)))
	}
	send(t, s, cancelToPB("ns/j", 1))
	n.waitFor("cancel ns/j 1")
	for i := range 3 {
		if n.count(fmt.Sprintf("demand x %v", demandOf(i))) > 0 {
			t.Error("demand of a node that is no member counts")
		}
	}
	if n.peer.SendPermits("x", permitsOf(1)) != 0 {
		t.Error("a permit is sent to a node that is no member")
	}
	n.hasMembers("x")
	n.waitFor(fmt.Sprintf("demand x %v", demandOf(2)))
	n.peer.SetView(sharding.NewView(2, "n", members(n)))
	send(t, s, demandToPB(demandOf(7)))
	n.waitFor(fmt.Sprintf("demand x %v", demandOf(7)))
	if n.peer.SendPermits("x", permitsOf(1)) != 1 {
		t.Error("a permit is not sent to a node that gossip has lost")
	}
	if n.count(fmt.Sprintf("demand x %v", demandOf(0))) > 0 {
		t.Error("demand that was replaced is passed on")
	}
}
