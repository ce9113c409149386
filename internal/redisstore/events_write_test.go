package redisstore

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fermata-io/fermata/internal/job"
)

// TestTheLineOfNewsIsBounded: what finds too many others in line is lost, and counted; what
// could not be written is first in line again.
func TestTheLineOfNewsIsBounded(t *testing.T) {
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{shards: make([]shardKeys, 2), events: newEventLine(MinKeepEvents, 2), metrics: m}
	for range newsPerShard + 3 {
		s.Announce(job.Happening{Kind: job.KindShardTaken, Shard: 1})
	}
	s.Announce(job.Happening{Kind: job.KindShardTaken, Shard: 0})
	if lost := testutil.ToFloat64(m.eventsLost); lost != 3 || len(s.events.news[1]) != newsPerShard || len(s.events.waiting()) != 2 {
		t.Errorf("%v are lost, %d wait", lost, len(s.events.news[1]))
	}
	s.events.news[1][0] = "first"
	taken := s.events.take(1)
	s.Announce(job.Happening{Kind: job.KindNodeJoined, Node: "n"})
	s.events.back(1, taken)
	if again := s.events.take(1); len(taken) == 0 || !slices.Equal(again, taken) || again[0] != "first" {
		t.Errorf("%d are taken, then %d", len(taken), len(again))
	}
}
