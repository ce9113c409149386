package node_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/proto/externalscaler"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// starts are the attempts that handlers have seen, with their tokens.
type starts struct {
	mu     sync.Mutex
	tokens map[string]int64
}

func (s *starts) note(t *worker.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[t.Job] = t.Token
}

// of a prefix are the jobs that have started, in the order of their leases.
func (s *starts) of(prefix string) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.tokens {
		if strings.HasPrefix(id, prefix) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(s.tokens[a], s.tokens[b]) })
	return ids
}

// have waits until so many jobs of a prefix have started.
func (s *starts) have(t *testing.T, prefix string, n int) {
	t.Helper()
	redistest.Eventually(t, redistest.Patience, fmt.Sprintf("%d starts of %s", n, prefix), func(context.Context) error {
		if got := len(s.of(prefix)); got != n {
			return fmt.Errorf("%d have started", got)
		}
		return nil
	})
}

// seesPause waits until a node shows that a queue is paused, or that it is not.
func seesPause(t *testing.T, n *node.Node, queue string, paused bool) {
	t.Helper()
	redistest.Eventually(t, redistest.Patience, fmt.Sprintf("a node to see that %s is paused: %v", queue, paused),
		func(ctx context.Context) error {
			text, err := metricsOf(ctx, n)
			if shown := strings.Contains(text, fmt.Sprintf("fermata_queue_paused{namespace=\"default\",queue=%q} 1\n",
				queue)); err == nil && shown != paused {
				err = fmt.Errorf("it is %v", shown)
			}
			return err
		})
}

// TestAPausedQueueStartsNothing: of two nodes, one has the worker, so that the other's shards
// are leased from under permits. What runs goes on to its end, another queue goes on, manual
// runs wait like the rest, autoscalers hear of what runs only; and when the queue is resumed,
// all of it starts in order.
func TestAPausedQueueStartsNothing(t *testing.T) {
	t.Parallel()
	const shards, due = 8, 24
	redis := redistest.Start(t)
	sharded := func(c *node.Config) { c.Shards = shards }
	a := startWith(t, redis.URL(), "a", sharded)
	b := startWith(t, redis.URL(), "b", sharded, a.GossipAddr())
	c, calls := jobs(t, a), dial(t, a)
	redistest.Eventually(t, redistest.Patience, "both nodes to hold shards", func(ctx context.Context) error {
		all, err := calls.Admin().Shards(ctx)
		holders := map[string]int{}
		for _, s := range all {
			holders[s.GetHolder()]++
		}
		if err == nil && (holders["a"] == 0 || holders["b"] == 0 || holders[""] > 0) {
			err = fmt.Errorf("%v", holders)
		}
		return err
	})
	started, release := starts{tokens: map[string]int64{}}, make(chan struct{})
	workWith(t, worker.Options{Addresses: []string{b.GRPCAddr()}, Slots: 3, Queues: []string{"mail", "other"},
		ID: "one"},
		map[string]func(context.Context, *worker.Task) error{
			"h": func(_ context.Context, t *worker.Task) error { started.note(t); return nil },
			"long": func(ctx context.Context, t *worker.Task) error {
				started.note(t)
				select {
				case <-release:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			},
		})
	at := func(queue, handler string, in time.Duration) *fermatav1.Job {
		return &fermatav1.Job{Handler: handler, Queue: queue, Schedule: &fermatav1.Schedule{
			Rule: &fermatav1.Schedule_Once{Once: timestamppb.New(time.Now().Add(in))},
		}}
	}

	create(t, c, "long", at("mail", "long", -time.Second))
	started.have(t, "long", 1)
	if _, err := calls.Admin().SetQueueSettings(t.Context(),
		&client.QueueSettings{Name: "mail", RecoveryRate: 1000}, client.SetQueueSettingsOptions{}); err != nil {
		t.Fatal(err)
	}
	if s, err := calls.Admin().PauseQueue(t.Context(), "mail"); err != nil || !s.GetPaused() || s.GetRecoveryRate() != 1000 {
		t.Fatal(s, err)
	}
	for i := range 2 * shards { // so that each node has some
		create(t, c, fmt.Sprint("later-", i), at("mail", "h", time.Hour))
	}
	seesPause(t, a, "mail", true)
	seesPause(t, b, "mail", true)

	for i := range due {
		create(t, c, fmt.Sprintf("mail-%02d", i), at("mail", "h", -time.Duration(due-i)*time.Second))
	}
	if _, _, err := calls.RunJob(t.Context(), "later-0", client.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 4 * shards {
		create(t, c, fmt.Sprint("other-", i), at("other", "h", -time.Second))
	}
	started.have(t, "other-", 4*shards)
	for _, id := range []string{"mail-00", "later-0"} {
		why, err := calls.ExplainJob(t.Context(), id)
		if err != nil || len(why.GetReasons()) != 1 ||
			why.GetReasons()[0].GetKind() != fermatav1.Reason_KIND_QUEUE_PAUSED {
			t.Errorf("%s waits for %v (%v)", id, why.GetReasons(), err)
		}
	}
	conn := connect(t, a)
	scaler := keda{t, externalscaler.NewExternalScalerClient(conn), &externalscaler.ScaledObjectRef{
		Name: "mail", Namespace: "jobs", ScalerMetadata: map[string]string{"queue": "mail", "targetBacklog": "5"},
	}}
	scaler.is(1, true)
	close(release)
	scaler.is(0, false)
	if j, err := calls.GetJob(t.Context(), "long"); err != nil ||
		j.GetStatus().GetLastOutcome() != fermatav1.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("the run that was live ended %v (%v)", j.GetStatus(), err)
	}
	if ids := append(started.of("mail-"), started.of("later-")...); len(ids) > 0 {
		t.Errorf("%q have started while their queue was paused", ids)
	}

	resumed := time.Now()
	if s, err := dial(t, b).Admin().ResumeQueue(t.Context(), "mail"); err != nil || s.GetPaused() ||
		s.GetRecoveryRate() != 1000 {
		t.Fatal(s, err)
	}
	started.have(t, "mail-", due)
	started.have(t, "later-0", 1)
	t.Logf("all had started %v after the queue was resumed", time.Since(resumed))
	last := map[int]string{}
	for _, id := range started.of("mail-") {
		shard := sharding.ShardOf("default", id, shards)
		if id < last[shard] {
			t.Errorf("%s was leased after %s, of the same shard", id, last[shard])
		}
		last[shard] = id
	}
	if seconds, err := heldSeconds(t.Context(), b, "mail", "queue_paused"); err != nil || seconds < 1 {
		t.Errorf("runs were held for %v s by the pause (%v)", seconds, err)
	}
	seesPause(t, a, "mail", false)
	seesPause(t, b, "mail", false)
}
