package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/runner"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestHooksUnconfirmed: what no replica confirms is stored, with the error beside the
// answer; who is not the holder is told so all the same.
func TestHooksUnconfirmed(t *testing.T) {
	s, err := Open(t.Context(), Options{Client: redistest.Start(t).Granted(), Shards: 1, AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	replaceRunner(t, s, func(o *runner.Options) { o.Durability, o.WaitTimeout = conn.DurabilityReplica, time.Millisecond })
	ctx := t.Context()
	if err := s.client.Set(ctx, s.LockKey(0), "holder", 0).Err(); err != nil {
		t.Fatal(err)
	}
	state := job.WebhookProgress{After: job.Place{MS: 7, Seq: 3}}
	if _, err := s.SaveWebhookProgress(ctx, 0, "somebody else", "ops", state, nil); !errors.Is(err, job.ErrNotHolder) || errors.Is(err, job.ErrDurability) {
		t.Errorf("another one: %v", err)
	}
	if _, err := s.SaveWebhookProgress(ctx, 0, "holder", "ops", state, nil); !errors.Is(err, job.ErrDurability) {
		t.Errorf("the holder: %v", err)
	}
	if states, err := s.WebhookProgress(ctx, []int{0}); err != nil || states[0]["ops"] != state {
		t.Errorf("%v, %v", states, err)
	}
}
