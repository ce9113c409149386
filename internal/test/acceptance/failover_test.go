package acceptance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestSentinelFailoverLosesNothingAcknowledged: under --durability replica, all
// that was acknowledged while the master died is there afterwards, and runs.
func TestSentinelFailoverLosesNothingAcknowledged(t *testing.T) {
	runAlone(t)
	sentinel := redistest.StartSentinel(t, 2, 3, 2, redistest.WithMinReplicas(1, 2))
	url := "redis+sentinel://" + strings.Join(sentinel.SentinelAddrs(), ",") + "/" + sentinel.MasterName()
	c := newRacedCluster(t, url, "--durability", "replica", "--durability-timeout", "400ms")
	c.pulse.pingServers(sentinel.Nodes()[1].Client(), sentinel.Nodes()[2].Client())
	a, b := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	c.startWorker("w1", 60, a.grpc)
	c.startWorker("w2", 60, b.grpc)
	first := time.Now().Add(time.Second)
	l := newLoad(100, first, "default")
	a.registerLoad(l)
	c.waitAllRan(l, patience)

	creators := startCreators(t, a, b)
	creators.awaitCreated(20)
	lost := beginFault("redis master killed")
	old := sentinel.KillMaster()
	sentinel.WaitFailover(old)
	// With min-replicas-to-write the new master refuses writes until the replica
	// that is left has found it, which Sentinel may take ten seconds to see to.
	probe := sentinel.Client()
	redistest.Eventually(t, patience, "the new master takes writes", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return probe.Set(ctx, "probe", "1", time.Minute).Err()
	})
	fault := lost.endFault(2 * time.Second)
	before := creators.countCreated()
	creators.awaitCreated(before + 20)
	c.waitEnds(time.Now().Add(4 * time.Second))
	creators.stopCreating()
	c.waitEnds(time.Now().Add(3 * time.Second))
	c.awaitSettled()

	jobs := b.listAllJobs()
	t.Logf("no writes for %v; %d jobs acknowledged, %d refused or unanswered on the way", time.Duration(fault.ToNS-fault.FromNS),
		creators.countCreated(), creators.refused)
	r := c.judgeHistory(historycheck.History{
		ExpectedSchedules: append(l.promises, creators.promises...), Faults: []historycheck.Fault{fault}, Bounds: calmBounds(), Stored: storedJobs(jobs),
	})
	atLeast(t, "nominal times", r.Targets, 200)
	atLeast(t, "creations that the failover hit", creators.refused, 1)
}

// creators register jobs one after the other, through all nodes, and note what
// was acknowledged. What was not is repeated with the same request id.
type creators struct {
	t       testing.TB
	cancel  context.CancelFunc
	working sync.WaitGroup

	mu       sync.Mutex
	promises []historycheck.ExpectedSchedule
	refused  int
}

func startCreators(t testing.TB, nodes ...*schedulerNode) *creators {
	return startCreatorsOf(t, "new", nodes...)
}

// startCreatorsOf gives their jobs names of their own.
func startCreatorsOf(t testing.TB, prefix string, nodes ...*schedulerNode) *creators {
	ctx, cancel := context.WithCancel(context.Background())
	c := &creators{t: t, cancel: cancel}
	for i, n := range nodes {
		c.working.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				c.createJob(ctx, n, fmt.Sprintf("%s-%d-%04d", prefix, i, k))
			}
		})
	}
	t.Cleanup(c.stopCreating)
	return c
}

// createJob repeats until it is acknowledged. The creator paces itself so that the
// workers keep up.
func (c *creators) createJob(ctx context.Context, n *schedulerNode, id string) {
	const interval = 3 * time.Second
	start := time.Now().Add(time.Second)
	j := newJob(behaviour{})
	j.Schedule = everyInterval(interval, start)
	for {
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		_, err := n.jobs.CreateJob(attempt, &fermatav1.CreateJobRequest{Parent: namespace, JobId: id, Job: j, RequestId: "create-" + id})
		cancel()
		if err == nil {
			break
		}
		switch status.Code(err) {
		case codes.Unavailable, codes.Aborted, codes.DeadlineExceeded, codes.ResourceExhausted:
		default:
			c.t.Errorf("create %s: %v", id, err)
		}
		c.mu.Lock()
		c.refused++
		c.mu.Unlock()
		sleepFor(100 * time.Millisecond)
	}
	c.mu.Lock()
	// Times that passed before the acknowledgement were not promised.
	p := historycheck.Promised(id, start, interval)
	p.FromMS = max(p.FromMS, time.Now().UnixMilli())
	c.promises = append(c.promises, p)
	c.mu.Unlock()
	sleepFor(50 * time.Millisecond)
}

// sleepFor spaces calls out; nothing waits for it to be long enough.
func sleepFor(d time.Duration) { <-time.After(d) }

func (c *creators) countCreated() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.promises)
}

// awaitCreated waits until so many creations were acknowledged.
func (c *creators) awaitCreated(n int) {
	c.t.Helper()
	redistest.Eventually(c.t, patience, "jobs are created", func() error {
		if got := c.countCreated(); got < n {
			return fmt.Errorf("%d of %d are acknowledged", got, n)
		}
		return nil
	})
}

// stopCreating ends the creators; what they work on is finished.
func (c *creators) stopCreating() {
	c.cancel()
	c.working.Wait()
}
