package shardlock

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestAddressesAreThoseOfHeartbeats: a member's address is the one in its own heartbeat, whatever gossip reports
// of its process.
func TestAddressesAreThoseOfHeartbeats(t *testing.T) {
	x := newReadings("b", "pb", "evil", "pb", "evil2", "nobody")
	x.give("pb", "b")
	x.at("pb", "b.example:7070")
	x.read(3)
	want := map[string]clientAddress{"b": {"pb", "b.example:7070"}}
	if got := x.r.clientAddresses(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	// Without new heartbeats the last address stays.
	delete(x.beat, "pb")
	x.read(20)
	if got := x.r.clientAddresses(); !maps.Equal(got, want) {
		t.Errorf("in silence: %v, want %v", got, want)
	}
	// Another node makes up a process for it.
	x.see("a", "pa", "b", "made-up")
	x.read(1)
	if got := x.r.clientAddresses(); len(got) > 0 {
		t.Errorf("of a process without a heartbeat: %v", got)
	}
}

// TestHeartbeatsCarryClientAddresses: two managers by one Redis. The previous build reads them as before.
func TestHeartbeatsCarryClientAddresses(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Granted(), 2)
	a := f.start("a", func(o *Options) { o.ClientAddr = "a.example:7070" })
	b := f.start("b")
	f.see("a", "b")
	redistest.Eventually(f.t, patience, "b knows where a is", func() error {
		if got := b.ClientAddress("a", a.Process()); got != "a.example:7070" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	if got := b.ClientAddress("a", "another"); got != "" {
		t.Errorf("another process of a is at %q", got)
	}
	if got := a.ClientAddress("b", b.Process()); got != "" {
		t.Errorf("b, which does not say, is at %q", got)
	}
	text := f.observer.Get(t.Context(), testLifeKey(a.calls.process)).Val()
	var every, ttl int
	n, err := fmt.Sscanf(text, "%d %d", &every, &ttl)
	if parts := strings.SplitN(text, " ", 3); n != 2 || err != nil || ttl != int(a.o.TTL.Milliseconds()) || len(parts) != 3 || parts[2] != "a" {
		t.Errorf("the previous build reads %d, %d, %q of %q (%v)", every, ttl, parts, text, err)
	}
}
