package worker

import (
	"context"
	"strings"
	"testing"
)

func TestTokensNeedTLSBeyondThisHost(t *testing.T) {
	o := Options{Addresses: []string{"127.0.0.1:1"}, Token: func(context.Context) (string, error) { return "t", nil }}
	if _, err := New(o); err != nil {
		t.Error(err)
	}
	o.Addresses = append(o.Addresses, "node-1:7070")
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "node-1:7070") {
		t.Errorf("%v", err)
	}
	// What a node tells of others is no way round it.
	if conn, err := o.newConnection("10.0.0.1:7070", "127.0.0.1:1", &contactTime{}); err == nil {
		conn.Close()
		t.Error("a token would be sent to another host without TLS")
	}
	// Nor to this host, where the configured nodes are elsewhere: who listens here is not known.
	o.Addresses = []string{"node-1:7070"}
	if conn, err := o.newConnection("127.0.0.1:7070", "node-1:7070", &contactTime{}); err == nil {
		conn.Close()
		t.Error("a token would be sent without TLS to whoever listens on this host")
	}
}
