package node_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// A permit that reaches a node between its drain and the end of its links is answered.
func TestPermitsOfANodeThatStopsAreAnswered(t *testing.T) {
	redis := redistest.Start(t)
	a := start(t, redis.URL(), "a")
	start(t, redis.URL(), "b", a.GossipAddr())
	counted := func(what, series string) {
		t.Helper()
		redistest.Eventually(t, redistest.Patience, what, func(ctx context.Context) error {
			text, err := metricsOf(ctx, a)
			if err == nil && !strings.Contains(text, series+" 1\n") {
				err = fmt.Errorf("no %s 1 among the metrics", series)
			}
			return err
		})
	}
	counted("a link to b", `fermata_peer_links{direction="dialled"}`)
	a.StopEngines()
	a.OnPermits("b", []job.Permit{{ID: 1, N: 1, Lane: job.Lane{Namespace: "ns", Queue: "q"},
		ValidFor: job.PermitValidity}})
	counted("an answer to b", `fermata_peer_messages_sent_total{kind="permit_result"}`)
}

// TestPermitsThatAreTooManyAreAnswered: whoever sent them learns at once that they are not
// used, rather than wait until they expire.
func TestPermitsThatAreTooManyAreAnswered(t *testing.T) {
	redis := redistest.Start(t)
	a := start(t, redis.URL(), "a")
	start(t, redis.URL(), "b", a.GossipAddr())
	redistest.Eventually(t, redistest.Patience, "a link to b", func(ctx context.Context) error {
		text, err := metricsOf(ctx, a)
		if err == nil && !strings.Contains(text, `fermata_peer_links{direction="dialled"} 1`) {
			err = errors.New("none")
		}
		return err
	})
	const permits = 2000
	for i := range permits {
		a.OnPermits("b", []job.Permit{{ID: int64(i), N: 1, Lane: job.Lane{Namespace: "ns", Queue: "q"},
			ValidFor: time.Minute}})
	}
	redistest.Eventually(t, redistest.Patience, "an answer to each", func(ctx context.Context) error {
		text, err := metricsOf(ctx, a)
		if want := fmt.Sprintf(`fermata_peer_messages_sent_total{kind="permit_result"} %d`, permits); err == nil &&
			!strings.Contains(text, want+"\n") {
			err = errors.New(text[strings.Index(text, "fermata_peer_messages"):])
		}
		return err
	})
}
