package membership

import (
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/gossiptest"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// isGossiping reports whether memberlist runs.
func isGossiping(c *Cluster) bool { return c.gossip.list.Load() != nil }

func TestSingleNodeDoesNotGossip(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	itself := net.JoinHostPort("localhost", strconv.Itoa(port)) // as the name of all pods of a set of one
	a := startNode(t, "a", joining(itself), func(o *Options) { o.BindPort = port })
	if infos := a.Members(); len(infos) != 1 || infos[0].Name != "a" || infos[0].Addr != a.LocalAddr() ||
		infos[0].State != StateAlive {
		t.Errorf("knows %+v", infos)
	}
	a.joinOnce(t.Context())
	if isGossiping(a) {
		t.Fatal("gossips with nobody")
	}
	b := startNode(t, "b", joining(a.LocalAddr()))
	awaitMembers(t, a, "a b")
	awaitMembers(t, b, "a b")
	for _, n := range []*Cluster{a, b} {
		if !isGossiping(n) {
			t.Errorf("%s does not gossip", n.o.Name)
		}
	}
}

// A process that restarts at its old address before its crash is detected receives nothing but a packet.
func TestAPacketBeginsGossip(t *testing.T) {
	t.Parallel()
	a := startNode(t, "a")
	conn, err := net.Dial("udp", a.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	redistest.Eventually(t, patience, "gossip has begun", func() bool {
		if _, err := conn.Write(gossiptest.Labelled(a.o.Label, []byte{pingType, 0x80})); err != nil {
			t.Fatal(err)
		}
		return isGossiping(a)
	})
}

func TestWithdrawalIsInTheOwnView(t *testing.T) {
	t.Parallel()
	a := startNode(t, "a")
	if err := a.PublishRedisState(RedisState{Aside: true, Blind: 2}); err != nil {
		t.Fatal(err)
	}
	awaitMembers(t, a, "a-")
	if m, _ := a.View().Member("a"); m.UnreachablePrimaries != 2 || m.GRPCAddr != "a:9000" {
		t.Errorf("a says %+v of itself", m)
	}
	b := startNode(t, "b", joining(a.LocalAddr()))
	awaitMembers(t, b, "a- b")
	if err := a.PublishRedisState(RedisState{}); err != nil {
		t.Fatal(err)
	}
	awaitMembers(t, b, "a b")
}

func TestNodeThatLeftAloneCannotBeJoined(t *testing.T) {
	t.Parallel()
	a := startNode(t, "a")
	if err := a.Leave(time.Second); err != nil {
		t.Fatal(err)
	}
	awaitMembers(t, a, "")
	if err := a.PublishRedisState(RedisState{Aside: true}); err != nil {
		t.Error(err)
	}
	conn, err := net.Dial("tcp", a.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("reading from it: %v", err)
	}
	if isGossiping(a) || memberNames(a.View()) != "" {
		t.Errorf("it is back: %q", memberNames(a.View()))
	}
}

// Stop returns in every state of a node, and no call hangs.
func TestStopWhileOthersCall(t *testing.T) {
	t.Parallel()
	for range 30 {
		a := startNode(t, "a")
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				conn, err := net.Dial("tcp", a.LocalAddr())
				if err != nil {
					return // the listener was closed first
				}
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(patience))
				_ = conn.(*net.TCPConn).CloseWrite()
				if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("a call hangs")
				}
			})
		}
		if err := a.Stop(); err != nil {
			t.Error(err)
		}
		calls.Wait()
	}
}
