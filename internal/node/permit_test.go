package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/redistest"
)

// A permit that reaches a node between its drain and the end of its links is answered.
func TestPermitsOfANodeThatStopsAreAnswered(t *testing.T) {
	redis := redistest.Start(t)
	a := start(t, redis.URL(), "a")
	start(t, redis.URL(), "b", a.GossipAddr())
	counted := func(what, series string) {
		t.Helper()
		redistest.Eventually(t, time.Minute, what, func(ctx context.Context) error {
			text, err := metricsOf(ctx, a)
			if err == nil && !strings.Contains(text, series+" 1\n") {
				err = fmt.Errorf("no %s 1 among the metrics", series)
			}
			return err
		})
	}
	counted("a link to b", `fermata_peer_links{direction="dialled"}`)
	a.StopEngines()
	a.OnPermit("b", job.Permit{ID: 1, N: 1, Lane: job.Lane{Namespace: "ns", Queue: "q"}, ValidFor: job.PermitValidity})
	counted("an answer to b", `fermata_peer_messages_sent_total{kind="permit_result"}`)
}
