package node_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

func TestFactsAreThoseOfTheWholeCluster(t *testing.T) {
	redis := redistest.Start(t)
	a := start(t, redis.URL(), "a")
	b := start(t, redis.URL(), "b", a.GossipAddr())
	queue := job.QueueKey{Namespace: "default", Queue: "default"}
	expect := func(what string, good func(job.Facts) bool) {
		t.Helper()
		redistest.Eventually(t, redistest.Patience, what, func(ctx context.Context) error {
			if f := a.JobFacts(ctx, 0, queue); !f.ClusterKnown || !good(f) {
				return fmt.Errorf("facts %+v", f)
			}
			return nil
		})
	}
	expect("a holder", func(f job.Facts) bool {
		return f.Held && (f.Holder == "a" || f.Holder == "b") &&
			f.Workers == 0
	})
	c := jobs(t, a)
	create(t, c, "idle", &fermatav1.Job{Handler: "ok"})
	if _, err := c.RunJob(t.Context(), &fermatav1.RunJobRequest{Name: "namespaces/default/jobs/idle"}); err != nil {
		t.Fatal(err)
	}
	// What the ledger calls now is a millisecond ahead for whoever explains, at times.
	redistest.Eventually(t, redistest.Patience, "no worker is the reason", func(ctx context.Context) error {
		e, err := c.ExplainJob(ctx, &fermatav1.ExplainJobRequest{Name: "namespaces/default/jobs/idle"})
		if err != nil || len(e.GetReasons()) == 0 || e.GetReasons()[0].GetKind() != fermatav1.Reason_KIND_NO_WORKER {
			return fmt.Errorf("explained by %v (%v)", e, err)
		}
		return nil
	})
	work(t, b, 3, map[string]func(context.Context,
		*worker.Task) error{"ok": func(context.Context, *worker.Task) error { return nil }})
	expect("a worker of the other node", func(f job.Facts) bool { return f.Workers == 1 && f.FreeSlots == 3 })
	if f := a.JobFacts(t.Context(), 0, job.QueueKey{Namespace: "default", Queue: "other"}); f.Workers != 0 ||
		f.FreeSlots != 0 {
		t.Errorf("another queue: %+v", f)
	}
}
