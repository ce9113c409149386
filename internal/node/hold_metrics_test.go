package node_test

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// heldSeconds is how long runs of a queue were held for a reason, by the metrics of a node.
func heldSeconds(ctx context.Context, n *node.Node, queue, reason string) (float64, error) {
	text, err := metricsOf(ctx, n)
	series := fmt.Sprintf(`fermata_held_seconds_total{namespace="default",queue=%q,reason=%q} `, queue, reason)
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if value, is := strings.CutPrefix(lines.Text(), series); is {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, err
}

// TestHoldReasonsAreMeasured: for a worker, for a slot, for a limit of their queue; the
// worker of another node counts as one.
func TestHoldReasonsAreMeasured(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a := start(t, redis.URL(), "a")
	b := start(t, redis.URL(), "b", a.GossipAddr())
	c, calls := jobs(t, a), dial(t, a)
	now := func(queue string) *fermatav1.Job {
		return &fermatav1.Job{
			Handler: "slow", Queue: queue,
			Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Once{Once: timestamppb.New(time.Now().Add(-time.Millisecond))}},
		}
	}
	if _, err := calls.Admin().SetQueueSettings(t.Context(),
		&client.QueueSettings{Name: "paced", Rate: 2, Burst: 1}, client.SetQueueSettingsOptions{}); err != nil {
		t.Fatal(err)
	}
	slow := map[string]func(context.Context, *worker.Task) error{"slow": func(context.Context, *worker.Task) error {
		time.Sleep(300 * time.Millisecond)
		return nil
	}}
	held := func(what string, n *node.Node, queue, reason string, least float64) {
		t.Helper()
		redistest.Eventually(t, 20*time.Second, what, func(ctx context.Context) error {
			seconds, err := heldSeconds(ctx, n, queue, reason)
			if err == nil && seconds < least {
				err = fmt.Errorf("%s: %v seconds", reason, seconds)
			}
			return err
		})
	}

	create(t, c, "early", now("late"))
	redistest.Eventually(t, 20*time.Second, "the job waits", func(ctx context.Context) error {
		late, err := calls.TopJobs(ctx, fermatav1.TopJobsRequest_KIND_LATE, client.TopOptions{AllNamespaces: true, Limit: 10})
		if err == nil && (len(late.GetJobs()) == 0 || late.GetJobs()[0].GetLag().AsDuration() < time.Second) {
			err = fmt.Errorf("%v", late)
		}
		return err
	})
	workWith(t, worker.Options{Addresses: []string{b.GRPCAddr()}, Slots: 1, Queues: []string{"late", "busy"},
		ID: "one"}, slow)
	held("waiting for a worker", b, "late", "no_worker", 0.9)

	for i := range 3 {
		create(t, c, fmt.Sprint("busy-", i), now("busy"))
	}
	held("waiting for a slot", b, "busy", "slot", 0.8) // 0.3 s, and twice that
	if seconds, err := heldSeconds(t.Context(), b, "busy", "no_worker"); err != nil || seconds > 0.5 {
		t.Errorf("a queue whose worker was busy waited for one for %v s, %v", seconds, err)
	}

	workWith(t, worker.Options{Addresses: []string{a.GRPCAddr()}, Slots: 10, Queues: []string{"paced"}, ID: "two"},
		slow)
	for i := range 4 {
		create(t, c, fmt.Sprint("paced-", i), now("paced"))
	}
	held("waiting for the rate", a, "paced", "rate", 1.5) // 0.5 s, 1 s, 1.5 s
}
