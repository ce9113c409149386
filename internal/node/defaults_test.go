package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestNodesWithOtherDefaultsAreReported by a metric and one warning each, until they agree.
func TestNodesWithOtherDefaultsAreReported(t *testing.T) {
	redis := redistest.Start(t)
	logs := map[string]*said{"a": {}, "b": {}, "c": {}}
	with := func(name string, attempts int) func(*node.Config) {
		return func(c *node.Config) {
			c.Shards = 2
			c.Defaults = backoff.Layer{Set: 1 << backoff.RetryMaxAttempts,
				Values: backoff.Policies{Retry: backoff.Retry{MaxAttempts: attempts}}}
			c.Logger = slog.New(slog.NewTextHandler(logs[name], nil))
		}
	}
	differ := func(n *node.Node, name string, others, warnings int) {
		t.Helper()
		redistest.Eventually(t, redistest.Patience, "what "+name+" knows of others", func() error {
			text, err := metricsOf(t.Context(), n)
			if err != nil || !strings.Contains(text, fmt.Sprintf("fermata_policy_default_mismatches %d\n", others)) {
				return fmt.Errorf("not %d, %v", others, err)
			}
			if warned := logs[name].count("nodes have different defaults"); warned != warnings {
				return fmt.Errorf("%d warnings", warned)
			}
			return nil
		})
	}
	a := startWith(t, redis.URL(), "a", with("a", 4))
	b := startWith(t, redis.URL(), "b", with("b", 5), a.GossipAddr())
	differ(a, "a", 1, 1)
	differ(b, "b", 1, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := b.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	differ(a, "a", 0, 1)
	c := startWith(t, redis.URL(), "c", with("c", 4), a.GossipAddr())
	redistest.Eventually(t, redistest.Patience, "the third is a member", func() error {
		nodes, err := dial(t, c).Admin().Nodes(t.Context())
		if err != nil || len(nodes) < 2 {
			return fmt.Errorf("%d nodes, %v", len(nodes), err)
		}
		return nil
	})
	differ(a, "a", 0, 1)
	differ(c, "c", 0, 0)
}
