package peer

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/fermata-io/fermata/internal/core/sharding"
)

func TestEndedProcessIsNoticed(t *testing.T) {
	a, b, c := cluster(t)
	for _, n := range []*node{a, c} {
		n.waitFor("back b")
	}
	if a.peer.HasEnded("b") || a.peer.HasEnded("nobody") {
		t.Error("gone before its time")
	}
	b.stop()
	a.waitFor("gone b")
	c.waitFor("gone b")
	if !a.peer.HasEnded("b") || a.peer.HasEnded("c") {
		t.Error("b is gone, c is not")
	}
	again := start(t, "b", b.addr, nil)
	again.hasMembers("a", "c")
	a.waitFor("back b")
	again.waitFor(fmt.Sprintf("demand a %v", demandOf(0)))
	if a.peer.HasEnded("b") {
		t.Error("still gone")
	}
}

// TestUnreachableAddressDoesNotMeanEndedProcess: what else can become of a node's address, and of one that this
// node never reached.
func TestUnreachableAddressDoesNotMeanEndedProcess(t *testing.T) {
	for name, c := range map[string]struct {
		met  bool
		fail error
	}{
		"nobody answers":         {true, context.DeadlineExceeded},
		"no way there":           {true, syscall.EHOSTUNREACH},
		"reset":                  {true, syscall.ECONNRESET},
		"refused from the first": {false, syscall.ECONNREFUSED},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, "b", "127.0.0.1:0", nil)
			var broken atomic.Bool
			var dials atomic.Int32
			broken.Store(!c.met)
			failed := make(chan struct{})
			a := &node{t: t, name: "a", news: make(chan struct{}, 1)}
			p, err := New(Options{Self: "a", Handler: a, Dial: func(ctx context.Context, address string) (net.Conn, error) {
				if broken.Load() {
					if dials.Add(1) == 3 {
						close(failed)
					}
					return nil, fmt.Errorf("dial: %w", c.fail)
				}
				return new(net.Dialer).DialContext(ctx, "tcp", address)
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Stop)
			p.SetView(sharding.NewView(1, "a", members(b)))
			if c.met {
				a.waitFor("back b")
				broken.Store(true)
				b.stop()
			}
			<-failed
			a.mu.Lock()
			defer a.mu.Unlock()
			if p.HasEnded("b") || slices.Contains(a.heard, "gone b") {
				t.Errorf("taken for gone after: %v", c.fail)
			}
		})
	}
}
