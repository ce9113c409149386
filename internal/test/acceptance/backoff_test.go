package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestBackoffSurvivesTheLossOfAllNodes: a failing job on a 60 s base waits 120,
// 240, 480, 960, 1920 and 1920 s; what is stored is the same after every
// scheduler process was killed and new ones were started, after each step; and
// success resets.
func TestBackoffSurvivesTheLossOfAllNodes(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	client := server.Client()
	begun := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	now := begun
	set := func(at time.Time) {
		now = at
		if err := client.Set(callContext(t), clockKey, at.UnixMilli(), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set(begun)
	c := newCluster(t, server.URL())
	generation := 0
	fresh := func() *schedulerNode {
		generation++
		c.startVirtual(fmt.Sprintf("n%d-a", generation))
		n := c.startVirtual(fmt.Sprintf("n%d-b", generation))
		c.awaitSettled()
		return n
	}
	n := fresh()
	control := filepath.Join(t.TempDir(), "fails")
	if err := os.WriteFile(control, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j := newJob(behaviour{FailWhile: control})
	j.Schedule = everyInterval(time.Minute, begun)
	j.BackoffPolicy = &fermatav1.BackoffPolicy{Jitter: &fermatav1.Jitter{Kind: fermatav1.Jitter_KIND_NONE}}
	created := n.createJob("endpoint", j)
	due := created.GetStatus().GetNextDueTime().AsTime()
	if want := begun.Add(time.Minute); due != begun && due != want {
		t.Fatalf("first due at %v, want %v", due, want)
	}

	for failures, seconds := range []int{120, 240, 480, 960, 1920, 1920, 1920} {
		w := c.startWorker(fmt.Sprintf("w%d", failures), 1, n.grpc)
		// Nothing happens before it is due.
		set(due.Add(-time.Millisecond))
		if s := n.getJob("endpoint").GetStatus(); s.GetState() != fermatav1.JobStatus_STATE_SCHEDULED || !s.GetNextDueTime().AsTime().Equal(due) {
			t.Fatalf("a millisecond before it is due: %v", s)
		}
		set(due)
		redistest.Eventually(t, patience, fmt.Sprintf("failure %d is stored", failures+1), func() error {
			return wantStatus(n.getJob("endpoint"), func(s *fermatav1.JobStatus) bool {
				return s.GetConsecutiveFailures() == int64(failures+1) && s.GetState() == fermatav1.JobStatus_STATE_SCHEDULED
			})
		})
		stored := n.getJob("endpoint")
		s := stored.GetStatus()
		wait := time.Duration(seconds) * time.Second
		if got := s.GetNextDueTime().AsTime().Sub(now); got != wait || s.GetEffectiveInterval().AsDuration() != wait {
			t.Errorf("after %d failures due in %v, effective interval %v; want %v", failures+1, got, s.GetEffectiveInterval().AsDuration(), wait)
		}
		if s.GetDelaySource() != fermatav1.DelaySource_DELAY_SOURCE_BACKOFF || s.GetLastOutcome() != fermatav1.Outcome_OUTCOME_FAILED || s.GetLastError() == "" {
			t.Errorf("after %d failures: %v", failures+1, s)
		}
		due = s.GetNextDueTime().AsTime()

		bytesBefore := dumpKeyspace(t, server)
		w.killProcess()
		for _, node := range slices.Clone(c.nodes) {
			c.killNode(node)
		}
		n = fresh()
		if after := n.getJob("endpoint"); !proto.Equal(after, stored) {
			t.Fatalf("after all nodes were killed:\nbefore %v\nafter  %v", stored, after)
		}
		if after := dumpKeyspace(t, server); !slices.Equal(bytesBefore, after) {
			t.Fatalf("after all nodes were killed Redis has\n%q\nand had\n%q", after, bytesBefore)
		}
	}

	if err := os.Remove(control); err != nil {
		t.Fatal(err)
	}
	c.startWorker("w-last", 1, n.grpc)
	set(due)
	redistest.Eventually(t, patience, "success is stored", func() error {
		return wantStatus(n.getJob("endpoint"), func(s *fermatav1.JobStatus) bool {
			return s.GetSucceededTotal() == 1 && s.GetState() == fermatav1.JobStatus_STATE_SCHEDULED
		})
	})
	s := n.getJob("endpoint").GetStatus()
	if s.GetConsecutiveFailures() != 0 || s.GetEffectiveInterval().AsDuration() != time.Minute || s.GetDelaySource() != fermatav1.DelaySource_DELAY_SOURCE_SCHEDULE {
		t.Errorf("success did not reset: %v", s)
	}
	if got := s.GetNextDueTime().AsTime().Sub(now); got <= 0 || got > time.Minute {
		t.Errorf("after success due in %v, want at most a minute", got)
	}
	if s.GetRunsTotal() != 8 || s.GetDeadTotal() != 7 || s.GetLostTotal() != 0 {
		t.Errorf("totals: %v", s)
	}
}
