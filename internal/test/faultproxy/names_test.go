package faultproxy_test

import (
	"net"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/faultproxy"
)

func TestFaultsApplyToChosenClients(t *testing.T) {
	p := faultproxy.New(t, echoServer(t))
	names := make(chan string, 4)
	p.Name(func(net.Addr) string { return <-names })
	names <- "a"
	a := dialTCP(t, p.Addr())
	names <- "b"
	b := dialTCP(t, p.Addr())
	waitOpen(t, p, 2)
	p.Only("a")
	p.Blackhole(faultproxy.Both)
	writeText(t, b, "x")
	expectText(t, b, "x")
	writeText(t, a, "y")
	if isReadable(t, a) {
		t.Error("bytes came back through a black hole")
	}
	p.CloseAll()
	waitOpen(t, p, 1)
	p.Refuse(true)
	names <- "a"
	if _, err := dialTCP(t, p.Addr()).Read(make([]byte, 1)); err == nil {
		t.Error("a was not refused")
	}
	names <- "b"
	again := dialTCP(t, p.Addr())
	writeText(t, again, "z")
	expectText(t, again, "z")
	if c := p.Counters(); c.Closed != 1 || c.Refused != 1 || c.Connections != 3 {
		t.Errorf("counters %+v", c)
	}
}

func TestLatencyBetween(t *testing.T) {
	p := faultproxy.New(t, echoServer(t))
	p.LatencyBetween(20*time.Millisecond, 60*time.Millisecond)
	conn := dialTCP(t, p.Addr())
	begun := time.Now()
	for range 5 { // in order, whatever each one's delay is
		writeText(t, conn, "abc")
	}
	expectText(t, conn, "abcabcabcabcabc")
	if took := time.Since(begun); took < 40*time.Millisecond {
		t.Errorf("answered after %v, want at least 40ms", took)
	}
}
