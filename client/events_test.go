package client_test

import (
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// eventNode breaks its streams as a test scripts it.
type eventNode struct {
	fermatav1.UnimplementedEventServiceServer

	mu     sync.Mutex
	script []eventStep
	tokens []string // that streams were begun with
}

// eventStep is one stream: what it tells, and how it ends.
type eventStep struct {
	responses []*fermatav1.WatchEventsResponse
	end       error
}

func (n *eventNode) WatchEvents(q *fermatav1.WatchEventsRequest, s grpc.ServerStreamingServer[fermatav1.WatchEventsResponse]) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tokens = append(n.tokens, q.GetResumeToken())
	step := n.script[0]
	n.script = n.script[1:]
	for _, r := range step.responses {
		if err := s.Send(r); err != nil {
			return err
		}
	}
	return step.end
}

// TestWatchResumesAtAnotherNode: what has begun goes on, however often the next node is not
// there yet; what never began ends after Options.Attempts.
func TestWatchResumesAtAnotherNode(t *testing.T) {
	away := eventStep{end: status.Error(codes.Unavailable, "away")}
	first := eventStep{responses: []*fermatav1.WatchEventsResponse{{ResumeToken: "one"}}, end: away.end}
	last := eventStep{responses: []*fermatav1.WatchEventsResponse{{ResumeToken: "two", Events: []*fermatav1.Event{{Kind: "run.dead"}}}}}
	n := &eventNode{script: []eventStep{first, away, away, away, last}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	fermatav1.RegisterEventServiceServer(server, n)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { server.Stop(); <-served }()
	c := dial(t, client.Options{Attempts: 2}, listener.Addr().String())
	heard := 0
	for batch, err := range c.WatchEvents(t.Context(), client.EventFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		heard += len(batch.Events)
	}
	if heard != 1 || len(n.script) != 0 || n.tokens[4] != "one" {
		t.Errorf("heard %d events, begun with %q", heard, n.tokens)
	}
	n.script = []eventStep{away, away, last}
	for _, err = range c.WatchEvents(t.Context(), client.EventFilter{}) {
	}
	if status.Code(err) != codes.Unavailable || len(n.script) != 1 {
		t.Errorf("one that does not begin: %v, %d left", err, len(n.script))
	}
}
