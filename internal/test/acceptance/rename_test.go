package acceptance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestNodeKilledAmidRenames renames 60 one-time jobs, and kills the node that does it in the middle. The same calls on
// the other node end all renames: each job has its new name only, and runs once.
func TestNodeKilledAmidRenames(t *testing.T) {
	runBesideOthers(t)
	const jobs, callers = 60, 6
	c := newCluster(t, newRedis(t).URL())
	first, second := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	due := time.Now().Add(time.Hour)
	for i := range jobs {
		j := newJob(behaviour{})
		j.Schedule = onceAt(due)
		first.createJob(fmt.Sprintf("old-%03d", i), j)
	}
	rename := func(ctx context.Context, n *schedulerNode, i int) (*fermatav1.Job, error) {
		return n.jobs.RenameJob(ctx, &fermatav1.RenameJobRequest{Name: jobName(fmt.Sprintf("old-%03d", i)),
			NewId: fmt.Sprintf("new-%03d", i), RequestId: fmt.Sprintf("rename-%d", i)})
	}
	var next, done, failed atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < jobs; i = next.Add(1) - 1 {
				if _, err := rename(callContext(t), first, int(i)); err != nil {
					failed.Add(1)
				} else {
					done.Add(1)
				}
			}
		})
	}
	redistest.Eventually(t, patience, "a third of the renames", func(context.Context) error {
		if n := done.Load(); n < jobs/3 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	c.killNode(first)
	wg.Wait()
	if failed.Load() == 0 {
		t.Fatal("the node was killed after all renames")
	}
	for i := range jobs {
		callUntilAnswered(t, "rename again", func(ctx context.Context) (*fermatav1.Job, error) { return rename(ctx, second, i) })
	}
	for i := range jobs {
		if _, err := second.jobs.GetJob(callContext(t), &fermatav1.GetJobRequest{Name: jobName(fmt.Sprintf("old-%03d", i))}); status.Code(err) != codes.NotFound {
			t.Errorf("old-%03d: %v", i, err)
		}
		second.getJob(fmt.Sprintf("new-%03d", i))
	}
	c.startWorker("w", 20, second.grpc)
	for i := range jobs {
		callUntilAnswered(t, "run", func(ctx context.Context) (*fermatav1.RunJobResponse, error) {
			return second.jobs.RunJob(ctx, &fermatav1.RunJobRequest{Name: jobName(fmt.Sprintf("new-%03d", i)), RequestId: "now"})
		})
	}
	starts := func() map[string]int {
		count := map[string]int{}
		for _, e := range c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.Start }) {
			count[e.Job]++
		}
		return count
	}
	redistest.Eventually(t, patience, "all runs", func(context.Context) error {
		if n := len(starts()); n < jobs {
			return fmt.Errorf("%d jobs have run", n)
		}
		return nil
	})
	for name, n := range starts() {
		if n != 1 {
			t.Errorf("%s has run %d times", name, n)
		}
	}
}
