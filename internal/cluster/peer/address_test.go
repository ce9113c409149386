package peer

import (
	"slices"
	"testing"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/fermata-io/fermata/internal/core/sharding"
)

// TestClientAddressComesFromThePeerItself: addresses from gossip and invalid addresses are not used.
func TestClientAddressComesFromThePeerItself(t *testing.T) {
	saying := func(address string) func(*Options) { return func(o *Options) { o.ClientAddr = address } }
	a := startSecured(t, "a", "127.0.0.1:0", nil, insecure.NewCredentials(), saying("a.example:1"))
	b := startSecured(t, "b", "127.0.0.1:0", nil, insecure.NewCredentials(), saying("b.example:7070"))
	previous := start(t, "p", "127.0.0.1:0", nil) // sends the address only when asked
	odd := startSecured(t, "odd", "127.0.0.1:0", nil, insecure.NewCredentials(), saying("unix:///run/evil:1"))
	all := members(a, b, previous, odd)
	for i := range all {
		all[i].GRPCAddr = "evil.example:443"
	}
	madeUp := sharding.Member{Name: "made-up", GRPCAddr: "evil.example:443", PeerAddr: b.addr}
	nowhere := sharding.Member{Name: "nowhere", GRPCAddr: "evil.example:443", PeerAddr: "127.0.0.1:1"}
	a.peer.SetView(sharding.NewView(1, "a", append(all, madeUp, nowhere)))
	a.waitFor("back b")
	a.waitFor("address b")
	a.waitFor("address p")
	a.waitFor("back odd")
	for name, want := range map[string]string{"b": "b.example:7070", "p": "p.example:7070", "odd": "", "made-up": "", "nowhere": "", "a": "", "unknown": ""} {
		if got := a.peer.ClientAddress(name); got != want {
			t.Errorf("%s is at %q, want %q", name, got, want)
		}
	}
	a.mu.Lock()
	if slices.Contains(a.heard, "back made-up") {
		t.Error("b is linked under the name of a member that gossip makes up")
	}
	a.mu.Unlock()
	// The member has moved, and no peer has sent an address there yet.
	moved := all[1]
	moved.PeerAddr = "127.0.0.1:1"
	a.peer.SetView(sharding.NewView(2, "a", []sharding.Member{all[0], moved}))
	if got := a.peer.ClientAddress("b"); got != "" {
		t.Errorf("b is at %q by a link that is no more", got)
	}
}
