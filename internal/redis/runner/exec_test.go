package runner

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

// pipelineRecorder answers pipelines without a server, once they are released.
type pipelineRecorder struct {
	redis.Hook
	mu      sync.Mutex
	sizes   []int // commands of each pipeline
	release chan struct{}
}

func (p *pipelineRecorder) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (p *pipelineRecorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (p *pipelineRecorder) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		p.mu.Lock()
		p.sizes = append(p.sizes, len(cmds))
		p.mu.Unlock()
		<-p.release
		for _, c := range cmds {
			c.(*redis.Cmd).SetVal("value")
		}
		return nil
	}
}

// newRecordedRunner is a runner whose calls wait for others for at most half an hour.
func newRecordedRunner(t *testing.T) (*Runner, *pipelineRecorder) {
	t.Helper()
	recorder := &pipelineRecorder{release: make(chan struct{})}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { client.Close() })
	client.AddHook(recorder)
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &Runner{client: client, metrics: m, maxQueueWait: time.Hour / 2, opTimeout: time.Hour, now: time.Now}
	return r, recorder
}

// TestCallsWithoutATurnBlameTheNode: a call that waited too long for others has the error of a busy node, and is not
// sent later.
func TestCallsWithoutATurnBlameTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, recorder := newRecordedRunner(t)
		var sent sync.WaitGroup
		for range maxPipelinesInFlight {
			sent.Go(func() { r.RunEach(t.Context(), []*Op{NewCommand("get", "k", "get", "k")}) })
		}
		synctest.Wait()
		late := NewCommand("get", "k", "get", "k")
		r.RunEach(t.Context(), []*Op{late})
		if err := rediserr.Wrap("get", late.Err); !errors.Is(err, job.ErrNodeBusy) || !errors.Is(err, job.ErrUnavailable) {
			t.Error(err)
		}
		close(recorder.release)
		sent.Wait()
		if n := len(recorder.sizes); n != maxPipelinesInFlight {
			t.Errorf("%d pipelines were sent, want %d", n, maxPipelinesInFlight)
		}
	})
}

// TestPipelinesHaveFewBytes: calls that wait share pipelines, but not one that has many large answers or values.
func TestPipelinesHaveFewBytes(t *testing.T) {
	const calls = 1000
	for name, c := range map[string]struct {
		op   func() *Op
		most int // in one pipeline
	}{
		"small values":  {func() *Op { return NewCommand("get", "k", "get", "k") }, calls},
		"large answers": {func() *Op { o := NewCommand("get", "k", "get", "k"); o.ReplySize = 256 << 10; return o }, 16},
		"large values":  {func() *Op { return NewCommand("set", "k", "set", "k", strings.Repeat("x", 256<<10)) }, 16},
		"large bytes":   {func() *Op { return NewCommand("set", "k", "set", "k", make([]byte, 1<<20)) }, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, recorder := newRecordedRunner(t)
			o := c.op()
			var wg sync.WaitGroup
			for range calls {
				wg.Go(func() {
					own := *o
					if r.RunEach(t.Context(), []*Op{&own}); own.Err != nil {
						t.Error(own.Err)
					}
				})
			}
			synctest.Wait() // the first ones are sent, and all others wait
			close(recorder.release)
			wg.Wait()
			sum, largest := 0, 0
			for _, n := range recorder.sizes {
				sum, largest = sum+n, max(largest, n)
			}
			if sum != calls || largest > c.most || largest < c.most/2 {
				t.Errorf("%s: %d calls, %d in one pipeline, want %d and at most %d", name, sum, largest, calls, c.most)
			}
		})
	}
}
