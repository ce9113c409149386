package node

import (
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// TestUnservedQueues: only what all nodes have answered says that a queue has no worker.
func TestUnservedQueues(t *testing.T) {
	mail, web := job.QueueKey{Namespace: "a", Queue: "mail"}, job.QueueKey{Namespace: "a", Queue: "web"}
	worker := []job.QueueWorkers{{Namespace: "a", Queue: "mail", Workers: 1}}
	for name, c := range map[string]struct {
		nodes []job.NodeInfo
		want  []job.QueueKey
	}{
		"a worker elsewhere":       {[]job.NodeInfo{{}, {QueueWorkers: worker}}, []job.QueueKey{web}},
		"no worker":                {[]job.NodeInfo{{}, {}}, []job.QueueKey{mail, web}},
		"a node that is not there": {[]job.NodeInfo{{QueueWorkers: worker}, {Unreachable: true}}, nil},
		"no answer":                {nil, nil},
	} {
		n := &Node{}
		n.served.read(c.nodes)
		n.served.at = time.Now().Add(time.Hour) // not to be asked again
		if got := n.unservedQueues(t.Context(), []job.QueueKey{mail, web}); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	n := &Node{}
	n.served.mu.Lock() // another call asks the nodes
	if got := n.unservedQueues(t.Context(), []job.QueueKey{mail}); got != nil {
		t.Errorf("%v", got)
	}
}
