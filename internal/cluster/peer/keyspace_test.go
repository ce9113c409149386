package peer

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// syncLog is a log that can be asked while it is written.
type syncLog struct {
	mu sync.Mutex
	b  strings.Builder
}

func (x *syncLog) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

func (x *syncLog) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

func (x *syncLog) count(s string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.Count(x.b.String(), s)
}

// withKeyspace makes a node send a keyspace and log to x.
func withKeyspace(keyspace *string, mu *sync.Mutex, x *syncLog) func(*Options) {
	return func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(x, nil))
		o.Keyspace = func() string {
			mu.Lock()
			defer mu.Unlock()
			return *keyspace
		}
	}
}

// TestNodesOfTwoKeyspacesHaveNoLink: each refuses the other, logs it once, and counts it. They are linked when
// both use one keyspace.
func TestNodesOfTwoKeyspacesHaveNoLink(t *testing.T) {
	var mu sync.Mutex
	one, two, logA, logB := "one", "two", &syncLog{}, &syncLog{}
	a := startSecured(t, "a", "127.0.0.1:0", nil, insecure.NewCredentials(), withKeyspace(&one, &mu, logA))
	b := startSecured(t, "b", "127.0.0.1:0", nil, insecure.NewCredentials(), withKeyspace(&two, &mu, logB))
	a.peer.OfferSlots([]job.QueueDemand{{Namespace: "ns", Queue: "q", Free: 1}})
	for _, n := range []*node{a, b} {
		n.peer.SetView(sharding.NewView(1, n.name, members(a, b)))
	}
	const warning = "node uses another keyspace"
	redistest.Eventually(t, redistest.Patience, "both refuse", func(context.Context) error {
		if x, y := logA.count(warning), logB.count(warning); x != 1 || y != 1 || a.peer.countForeignMembers() != 1 || b.peer.countForeignMembers() != 1 {
			return fmt.Errorf("logged %d and %d times", x, y)
		}
		return nil
	})
	for _, n := range []*node{a, b} {
		if _, err := n.peer.links[map[string]string{"a": "b", "b": "a"}[n.name]].serveStream(); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s: %v", n.name, err)
		}
	}
	if a.peer.SendPermits("b", []job.Permit{{ID: 1, Shard: 1, N: 1, LockValue: "v", ValidFor: time.Second}}) > 0 {
		t.Error("a permit is sent to a node of another keyspace")
	}
	if x, y := logA.count(warning), logB.count(warning); x != 1 || y != 1 {
		t.Errorf("it is logged %d and %d times", x, y)
	}
	mu.Lock()
	two = "one"
	mu.Unlock()
	b.waitFor("demand a [{ns q 1 0 false}]")
	if n := a.peer.countForeignMembers() + b.peer.countForeignMembers(); n != 0 {
		t.Errorf("%v are counted still", n)
	}
}

// TestNodeWithoutKeyspaceIsLinked: nodes of the previous build send no keyspace.
func TestNodeWithoutKeyspaceIsLinked(t *testing.T) {
	for _, pair := range [][2]string{{"", "k"}, {"k", ""}, {"", ""}, {"k", "k"}} {
		if err := (handshake{protocol: 1, minProtocol: 1, keyspace: pair[0]}).checkCompatible(handshake{protocol: 1, minProtocol: 1, keyspace: pair[1]}); err != nil {
			t.Errorf("%q: %v", pair, err)
		}
	}
}

// A hello with another keyspace in a member's name does not make the member a foreign one while the link to it proves
// the contrary. The refusal does not have this node's keyspace; the log has both.
func TestAHelloDoesNotMarkALinkedMember(t *testing.T) {
	var mu sync.Mutex
	one, log := "keyspace-of-nodes", &syncLog{}
	a := startSecured(t, "a", "127.0.0.1:0", nil, insecure.NewCredentials(), withKeyspace(&one, &mu, log))
	b := startSecured(t, "b", "127.0.0.1:0", nil, insecure.NewCredentials(), withKeyspace(&one, &mu, &syncLog{}))
	a.peer.SetView(sharding.NewView(1, "a", members(a, b)))
	a.waitFor("back b")
	for i, name := range []string{"b", "nobody"} {
		s := dial(t, a)
		send(t, s, &fermatav1.LinkRequest{Message: &fermatav1.LinkRequest_Hello{Hello: &fermatav1.LinkHello{
			Node: name, Keyspace: "keyspace-of-caller"}}})
		_, err := s.Recv()
		if status.Code(err) != codes.FailedPrecondition || strings.Contains(err.Error(), one) {
			t.Errorf("%s: %v", name, err)
		}
		if log.count("its_keyspace=keyspace-of-caller keyspace=keyspace-of-nodes") != i+1 {
			t.Errorf("%s: logged: %s", name, log)
		}
	}
	if a.peer.countForeignMembers() != 0 || log.count("node uses another keyspace") > 0 {
		t.Error("b counts as a node of another keyspace")
	}
	b.stop()
	redistest.Eventually(t, redistest.Patience, "an ended link proves nothing", func() bool {
		a.peer.mu.Lock()
		defer a.peer.mu.Unlock()
		return a.peer.links["b"].provenKeyspace == ""
	})
}
