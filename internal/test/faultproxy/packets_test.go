package faultproxy_test

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/faultproxy"
)

// udpEcho answers every packet with itself, until the test ends.
func udpEcho(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 2000)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(buf[:n], from) // a lost answer shows in the test
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return conn.LocalAddr().String()
}

// isAnswered reports whether a packet comes back.
func isAnswered(t *testing.T, conn net.Conn, text string, within time.Duration) bool {
	t.Helper()
	writeText(t, conn, text)
	_ = conn.SetReadDeadline(time.Now().Add(within))
	buf := make([]byte, 2000)
	n, err := conn.Read(buf)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if err == nil && string(buf[:n]) != text {
		t.Fatalf("read %q, want %q", buf[:n], text)
	}
	return err == nil
}

func TestPacketsOfOneSenderAreLost(t *testing.T) {
	p := faultproxy.NewPackets(t, "127.0.0.1:0", udpEcho(t))
	var senders [2]net.Conn
	for i := range senders {
		conn, err := net.Dial("udp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		senders[i] = conn
	}
	p.Name(func(a net.Addr) string {
		if a.String() == senders[0].LocalAddr().String() {
			return "first"
		}
		return "other"
	})
	for i, s := range senders {
		if !isAnswered(t, s, "a", 10*time.Second) {
			t.Fatalf("sender %d gets no answer", i)
		}
	}
	p.Only("first")
	p.Lose(1)
	if isAnswered(t, senders[0], "b", silence) {
		t.Error("a packet that was to be lost was answered")
	}
	if !isAnswered(t, senders[1], "c", 10*time.Second) {
		t.Error("another sender's packet was lost")
	}
	p.Pass()
	if !isAnswered(t, senders[0], "d", 10*time.Second) {
		t.Error("a packet was lost after the fault")
	}
	if c := p.Counters(); c.Lost != 1 || c.Passed != 8 {
		t.Errorf("counters %+v, want 1 lost and 8 passed", c)
	}
}

func TestDelayedPackets(t *testing.T) {
	p := faultproxy.NewPackets(t, "127.0.0.1:0", udpEcho(t))
	conn, err := net.Dial("udp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p.Late(20*time.Millisecond, 40*time.Millisecond)
	begun := time.Now()
	if !isAnswered(t, conn, "late", 10*time.Second) {
		t.Fatal("no answer")
	}
	if took := time.Since(begun); took < 40*time.Millisecond {
		t.Errorf("answered after %v, want at least twice 20ms", took)
	}
	if c := p.Counters(); c.Delayed != 2 {
		t.Errorf("counters %+v, want 2 delayed", c)
	}
}
