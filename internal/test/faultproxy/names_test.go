package faultproxy_test

import (
	"net"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/faultproxy"
)

func TestFaultsHitOnlyTheClientsTheyAreFor(t *testing.T) {
	p := faultproxy.New(t, echoServer(t))
	names := make(chan string, 4)
	p.Name(func(net.Addr) string { return <-names })
	names <- "a"
	a := dial(t, p.Addr())
	names <- "b"
	b := dial(t, p.Addr())
	waitOpen(t, p, 2)
	p.Only("a")
	p.Blackhole(faultproxy.Both)
	write(t, b, "x")
	expect(t, b, "x")
	write(t, a, "y")
	if arrives(t, a) {
		t.Error("bytes came back through a black hole")
	}
	p.CloseAll()
	waitOpen(t, p, 1)
	p.Refuse(true)
	names <- "a"
	if _, err := dial(t, p.Addr()).Read(make([]byte, 1)); err == nil {
		t.Error("a was not refused")
	}
	names <- "b"
	again := dial(t, p.Addr())
	write(t, again, "z")
	expect(t, again, "z")
	if c := p.Counters(); c.Closed != 1 || c.Refused != 1 || c.Connections != 3 {
		t.Errorf("counters %+v", c)
	}
}

func TestLatencyBetween(t *testing.T) {
	p := faultproxy.New(t, echoServer(t))
	p.LatencyBetween(20*time.Millisecond, 60*time.Millisecond)
	conn := dial(t, p.Addr())
	begun := time.Now()
	for range 5 { // in order, whatever each one's delay is
		write(t, conn, "abc")
	}
	expect(t, conn, "abcabcabcabcabc")
	if took := time.Since(begun); took < 40*time.Millisecond {
		t.Errorf("answered after %v, want at least 40ms", took)
	}
}
