package redistest

import (
	"context"
	"fmt"
	"testing"
	"time"
)

const (
	pollInterval = 5 * time.Millisecond

	startDeadline    = 60 * time.Second  // one server, on a loaded machine
	topologyDeadline = 120 * time.Second // discovery, replication, failover
	checkDeadline    = 20 * time.Second  // one command of the harness
)

// Eventually polls cond until it returns nil, and fails the test with its last
// error if that takes longer than limit.
func Eventually(t testing.TB, limit time.Duration, what string, cond func(ctx context.Context) error) {
	t.Helper()
	if err := pollUntil(limit, cond); err != nil {
		t.Fatalf("redistest: %s: %v", what, err)
	}
}

// pollUntil calls cond until it returns nil or the limit has passed. Each call has a
// few seconds, so that a server which hangs does not use up the whole wait.
func pollUntil(limit time.Duration, cond func(ctx context.Context) error) error {
	deadline := time.Now().Add(limit)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := cond(ctx)
		cancel()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %w", limit, err)
		}
		<-ticker.C
	}
}
