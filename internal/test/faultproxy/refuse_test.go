package faultproxy

import (
	"net"
	"testing"
)

// TestRefusalCoversConnectionsBeingMade: a connection that was accepted before Refuse and
// reaches its target after CloseAll is closed too.
func TestRefusalCoversConnectionsBeingMade(t *testing.T) {
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	p := New(t, target.Addr().String())
	client, accepted := net.Pipe()
	dialed, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	p.Refuse(true)
	p.CloseAll()
	if !p.addLink("", accepted, dialed) {
		t.Error("the proxy stopped accepting")
	}
	if n := p.Open(); n != 0 {
		t.Errorf("%d connections pass through a proxy that refuses all", n)
	}
	if c := p.Counters(); c.Refused != 1 || c.Connections != 0 {
		t.Errorf("counters %+v", c)
	}
}
