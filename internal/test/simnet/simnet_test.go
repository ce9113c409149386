package simnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
)

// bed is two hosts; b listens.
type bed struct {
	t    *testing.T
	n    *Network
	a, b *Host
	l    net.Listener
}

func runBubble(t *testing.T, test func(*bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		b := &bed{t: t, n: n, a: n.Boot("10.0.0.1"), b: n.Boot("10.0.0.2")}
		var err error
		if b.l, err = b.b.Listen("10.0.0.2:1"); err != nil {
			t.Fatal(err)
		}
		test(b)
		b.a.Crash()
		b.b.Crash()
	})
}

// connectHosts opens a stream from a to b.
func (b *bed) connectHosts() (near, far net.Conn) {
	b.t.Helper()
	near, err := b.a.Dial(context.Background(), "10.0.0.2:1")
	if err != nil {
		b.t.Fatal(err)
	}
	if far, err = b.l.Accept(); err != nil {
		b.t.Fatal(err)
	}
	return near, far
}

// sendText writes a text and returns how long it takes to the other end.
func (b *bed) sendText(from, to net.Conn, text string) time.Duration {
	b.t.Helper()
	begun := time.Now()
	if _, err := from.Write([]byte(text)); err != nil {
		b.t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, []byte(text)) {
		b.t.Fatalf("read %q, %v, want %q", got, err, text)
	}
	return time.Since(begun)
}

func TestStreamsDeliverInOrderAfterALatency(t *testing.T) {
	runBubble(t, func(b *bed) {
		near, far := b.connectHosts()
		if took := b.sendText(near, far, "there"); took < minLatency || took > maxLatency {
			t.Errorf("took %v", took)
		}
		b.sendText(far, near, "and back")
		for i := range 100 {
			if _, err := near.Write([]byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, 100)
		if _, err := io.ReadFull(far, got); err != nil {
			t.Fatal(err)
		}
		for i, g := range got {
			if int(g) != i {
				t.Fatalf("byte %d is %d", i, g)
			}
		}
		if err := near.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Read(got); err != io.EOF {
			t.Errorf("read after the other end closed: %v", err)
		}
	})
}

func TestReadsEndAtTheirDeadline(t *testing.T) {
	runBubble(t, func(b *bed) {
		near, _ := b.connectHosts()
		begun := time.Now()
		if err := near.SetReadDeadline(begun.Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

func TestPartitionHoldsOneDirection(t *testing.T) {
	runBubble(t, func(b *bed) {
		near, far := b.connectHosts()
		b.n.Cut("10.0.0.1", "10.0.0.2")
		time.AfterFunc(time.Minute, func() { b.n.Heal("10.0.0.1", "10.0.0.2") })
		b.sendText(far, near, "the other way is open")
		if took := b.sendText(near, far, "held"); took < 59*time.Second || took > time.Minute {
			t.Errorf("took %v", took)
		}
	})
}

func TestFrozenHostNeitherSendsNorReceives(t *testing.T) {
	runBubble(t, func(b *bed) {
		near, far := b.connectHosts()
		b.b.Freeze()
		time.AfterFunc(time.Minute, b.b.Thaw)
		if took := b.sendText(near, far, "held"); took < 59*time.Second {
			t.Errorf("took %v", took)
		}
		b.b.Freeze()
		time.AfterFunc(time.Minute, b.b.Thaw)
		if took := b.sendText(far, near, "held"); took < 59*time.Second {
			t.Errorf("took %v", took)
		}
		if err := b.b.Running(); err != nil {
			t.Error(err)
		}
	})
}

func TestCrashResetsStreamsAndRefusesNewOnes(t *testing.T) {
	runBubble(t, func(b *bed) {
		near, far := b.connectHosts()
		b.b.Crash()
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read from a crashed host: %v", err)
		}
		if _, err := far.Write([]byte("x")); !errors.Is(err, ErrDown) {
			t.Errorf("a crashed host wrote: %v", err)
		}
		if _, err := b.a.Dial(context.Background(), "10.0.0.2:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialled a crashed host: %v", err)
		}
		if _, err := b.b.Dial(context.Background(), "10.0.0.1:1"); !errors.Is(err, ErrDown) {
			t.Errorf("a crashed host dialled: %v", err)
		}
		if err := b.b.Running(); !errors.Is(err, ErrDown) {
			t.Errorf("a crashed host runs: %v", err)
		}
	})
}

func TestPowerLossIsSilentUntilRestart(t *testing.T) {
	runBubble(t, func(b *bed) {
		near, _ := b.connectHosts()
		b.b.PowerOff()
		if err := near.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read from a host without power: %v", err)
		}
		if _, err := near.Write([]byte("anybody there?")); err != nil {
			t.Errorf("wrote to a host without power: %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := b.a.Dial(ctx, "10.0.0.2:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dialled a host without power: %v", err)
		}
		b.b = b.n.Boot("10.0.0.2")
		if _, err := near.Write([]byte("hello?")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("wrote to the successor on an old stream: %v", err)
		}
	})
}

func TestPartitionDropsPackets(t *testing.T) {
	runBubble(t, func(b *bed) {
		ga, err := b.a.Gossip(7)
		if err != nil {
			t.Fatal(err)
		}
		gb, err := b.b.Gossip(7)
		if err != nil {
			t.Fatal(err)
		}
		write := func() {
			if _, err := ga.WriteTo([]byte("ping"), "10.0.0.2:7"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		arrived := func(g memberlist.Transport) (n int) {
			for {
				select {
				case <-g.PacketCh():
					n++
				default:
					return n
				}
			}
		}
		write()
		if n := arrived(gb); n != 1 {
			t.Errorf("%d packets on an open way", n)
		}
		b.n.Cut("10.0.0.1", "10.0.0.2")
		write()
		b.n.Heal("10.0.0.1", "10.0.0.2")
		time.Sleep(time.Minute)
		if n := arrived(gb); n != 0 {
			t.Errorf("%d packets on a way that was cut", n)
		}
		b.n.Disturb(1, 0)
		write()
		if n := arrived(gb); n != 0 {
			t.Errorf("%d packets though all are lost", n)
		}
		b.n.Disturb(0, 0)
		conn, err := ga.DialTimeout("10.0.0.2:7", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		b.sendText(conn, <-gb.StreamCh(), "push, pull")
		for _, g := range []memberlist.Transport{ga, gb} {
			if err := g.Shutdown(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestSeedDeterminesLatencies(t *testing.T) {
	once := func() (all []time.Duration) {
		runBubble(t, func(b *bed) {
			near, far := b.connectHosts()
			for range 20 {
				all = append(all, b.sendText(near, far, "x"))
			}
		})
		return all
	}
	first, second := once(), once()
	for i := range first {
		if first[i] != second[i] {
			t.Fatalf("the %dth took %v, and again %v", i, first[i], second[i])
		}
	}
	if first[0] == first[1] && first[1] == first[2] {
		t.Error("all take the same time")
	}
}
