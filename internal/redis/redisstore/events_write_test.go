package redisstore

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// TestTheLineOfNewsIsBounded: what finds too many others in line is lost, and counted; what
// could not be written is first in line again.
func TestTheLineOfNewsIsBounded(t *testing.T) {
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{shards: make([]runner.ShardKeys, 2), events: newEventQueue(MinKeepEvents, 2), metrics: m}
	for range maxAnnouncementsPerShard + 3 {
		s.Announce(job.Event{Kind: job.KindShardTaken, Shard: 1})
	}
	s.Announce(job.Event{Kind: job.KindShardTaken, Shard: 0})
	if lost := testutil.ToFloat64(m.eventsLost); lost != 3 || len(s.events.waiting[1]) != maxAnnouncementsPerShard || len(s.events.nonEmpty) != 2 {
		t.Errorf("%v are lost, %d wait", lost, len(s.events.waiting[1]))
	}
	s.events.waiting[1][0].text = "first"
	taken := s.events.dequeueFor(t.Context(), 1, nil)
	s.Announce(job.Event{Kind: job.KindNodeJoined, Node: "n"})
	s.events.requeue(1, taken)
	if again := s.events.dequeueFor(t.Context(), 1, nil); len(taken) == 0 || !slices.Equal(again, taken) || again[0].text != "first" {
		t.Errorf("%d are taken, then %d", len(taken), len(again))
	}
}

// TestAnnouncementsHaveFewBytes: the bytes that wait are bounded, and counted again when they are queued again.
func TestAnnouncementsHaveFewBytes(t *testing.T) {
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	const shards = 64
	s := &Store{shards: make([]runner.ShardKeys, shards), events: newEventQueue(MinKeepEvents, shards), metrics: m}
	for range maxAnnouncementsPerShard {
		s.Announce(job.Event{Kind: job.KindShardTaken, Shard: 1, Error: strings.Repeat("x", 512)})
	}
	queued := s.events.bytes[1]
	if queued > maxAnnouncementBytes/shards+1<<10 || queued != textBytes(s.events.waiting[1]) {
		t.Errorf("%d bytes wait", queued)
	}
	if lost := testutil.ToFloat64(m.eventsLost); lost != float64(maxAnnouncementsPerShard-len(s.events.waiting[1])) {
		t.Errorf("%v are lost", lost)
	}
	taken := s.events.dequeueFor(t.Context(), 1, nil)
	if n := s.events.bytes[1]; n != queued-textBytes(taken) {
		t.Errorf("%d bytes wait after %d were taken", n, textBytes(taken))
	}
	s.events.requeue(1, taken)
	if n := s.events.bytes[1]; n != queued {
		t.Errorf("%d bytes wait again, want %d", n, queued)
	}
}

// TestNewsOfAJobGoBeforeItsDecisions: also where so many wait that one call would not
// carry them, and while they are on their way by themselves.
func TestNewsOfAJobGoBeforeItsDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{shards: make([]runner.ShardKeys, 1), events: newEventQueue(MinKeepEvents, 1)}
		announce := func(n int) {
			for range n {
				s.Announce(job.Event{Kind: job.KindRunStarted, Key: job.Key{Namespace: "ns", ID: "other"}})
			}
		}
		last := func(line []announcement) string { return line[len(line)-1].key.ID }
		mine := []*applyItem{{record: "ns/mine"}}

		announce(applyItems + 100)
		s.Announce(job.Event{Kind: job.KindRunStarted, Key: job.Key{Namespace: "ns", ID: "mine"}})
		announce(1)
		if line := s.events.dequeueFor(t.Context(), 0, mine); len(line) != applyItems+101 || last(line) != "mine" {
			t.Errorf("%d go with the decision", len(line))
		}

		flushed := s.events.startFlush()
		if len(flushed[0]) != 1 || len(s.events.startFlush()) != 0 {
			t.Fatalf("%d are flushed", len(flushed[0]))
		}
		announce(1)
		var line []announcement
		done := make(chan struct{})
		go func() {
			defer close(done)
			line = s.events.dequeueFor(t.Context(), 0, mine)
		}()
		given, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if early := s.events.dequeueFor(given, 0, mine); early != nil {
			t.Errorf("%d are taken before those that came first are written", len(early))
		}
		synctest.Wait()
		s.events.endFlush(0, flushed[0])
		<-done
		if len(line) != 2 {
			t.Errorf("%d go with the decision after what failed", len(line))
		}
	})
}
