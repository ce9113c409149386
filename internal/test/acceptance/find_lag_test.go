package acceptance

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

const (
	// lagJobs run once a second each.
	lagJobs = 200
	// listPause is the time between the starts of two calls: those of thirty consoles that load a list each three
	// seconds.
	listPause = 100 * time.Millisecond
)

// lagMeter measures how late runs start.
type lagMeter struct {
	mu   sync.Mutex
	lags []time.Duration
}

// take returns what was measured since the last call.
func (m *lagMeter) take() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	lags := m.lags
	m.lags = nil
	return lags
}

// startLagMeter runs jobs in a queue of their own, spread over each second, and waits until they run.
func (c *cluster) startLagMeter() *lagMeter {
	c.t.Helper()
	m := &lagMeter{}
	var addresses []string
	for _, n := range c.nodes {
		addresses = append(addresses, n.grpc)
	}
	w, err := worker.New(worker.Options{
		Addresses: addresses, Queues: []string{"lag"}, Slots: lagJobs, ID: "lag", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	w.Handle("lag", func(_ context.Context, task *worker.Task) error {
		lag := time.Since(task.DueTime)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.lags = append(m.lags, lag)
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = w.Run(ctx) })
	c.t.Cleanup(func() { cancel(); ended.Wait() })
	first := time.Now().Add(2 * time.Second)
	q := &fermatav1.BatchCreateJobsRequest{Parent: namespace, NamesOnly: true}
	for i := range lagJobs {
		at := first.Add(time.Duration(i) * time.Second / lagJobs)
		job := newJob(behaviour{})
		job.Handler, job.Queue, job.Schedule = "lag", "lag", everyInterval(time.Second, at)
		q.Requests = append(q.Requests, &fermatav1.CreateJobRequest{JobId: fmt.Sprintf("lag-%03d", i), Job: job})
	}
	if _, err := c.nodes[0].jobs.BatchCreateJobs(callContext(c.t), q); err != nil {
		c.t.Fatal(err)
	}
	redistest.Eventually(c.t, patience, "runs of all jobs", func(context.Context) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.lags) < 2*lagJobs {
			return fmt.Errorf("%d runs", len(m.lags))
		}
		return nil
	})
	return m
}

// unreadReplies receives replies without decoding them: the test measures the lag in its own process, where a reader of
// lists would not be.
type unreadReplies struct{ encoding.CodecV2 }

func (unreadReplies) Unmarshal(mem.BufferSlice, any) error { return nil }

// measureLagBesideLists compares the lag of runs while nothing else is asked with that while jobs are listed. Both
// take turns, so that what else the machine does is in both.
func measureLagBesideLists(t *testing.T, m *lagMeter, rounds int, span time.Duration, calls []listCall) {
	t.Helper()
	unread := grpc.ForceCodecV2(unreadReplies{encoding.GetCodecV2(proto.Name)})
	var quiet, busy []time.Duration
	for range rounds {
		m.take()
		<-time.After(span)
		quiet = append(quiet, m.take()...)
		pause := time.NewTicker(listPause)
		end := time.Now().Add(span)
		for i := 0; time.Now().Before(end); i++ {
			if _, err := calls[i%len(calls)](callContext(t), unread); err != nil {
				t.Fatal(err)
			}
			<-pause.C
		}
		pause.Stop()
		busy = append(busy, m.take()...)
	}
	quiet, busy = sortedDurations(quiet), sortedDurations(busy)
	before, meanwhile := quantileOfSorted(quiet, 0.99), quantileOfSorted(busy, 0.99)
	t.Logf("lag of %d runs: p50 %v p99 %v; of %d runs beside %v lists a second: p50 %v p99 %v, %.2f times", len(quiet),
		quantileOfSorted(quiet, 0.5), before, len(busy), int(time.Second/listPause), quantileOfSorted(busy, 0.5), meanwhile,
		meanwhile.Seconds()/before.Seconds())
}
