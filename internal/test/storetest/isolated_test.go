package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// TestIsolatedPrimary cuts a primary off from its replicas and sentinels, together
// with one client, which goes on writing to it while the others have elected another
// one; then the cut heals, and the old primary becomes a replica. In class replica
// nothing that was acknowledged is lost. In class local something is, which shows
// that the layout has the power to lose.
func TestIsolatedPrimary(t *testing.T) {
	t.Run("replica", func(t *testing.T) {
		t.Parallel()
		inside, outside, cut := isolatePrimary(t, conn.DurabilityReplica, redistest.WithMinReplicas(1, 2))
		for _, w := range []*isolatedWriter{inside, outside} {
			if len(w.lost) > 0 {
				t.Errorf("%s: %d of %d acknowledged jobs are lost: %.300q", w.name, len(w.lost), len(w.acked), w.lost)
			}
		}
		if inside.last.After(cut) {
			t.Errorf("the primary acknowledged what it was asked %v after it was cut off", inside.last.Sub(cut))
		}
		t.Logf("unconfirmed %v after the cut, NOREPLICAS %v after it", inside.unconfirmed.Sub(cut), inside.noReplicas.Sub(cut))
	})
	t.Run("local, as the control", func(t *testing.T) {
		t.Parallel()
		// What the client outside was answered just before the cut may be lost as well.
		inside, _, _ := isolatePrimary(t, conn.DurabilityLocal)
		if len(inside.lost) == 0 {
			t.Errorf("none of %d is lost: the layout had no power", len(inside.acked))
		}
	})
}

// isolatePrimary returns what the two clients saw, and when the cut was made.
func isolatePrimary(t *testing.T, class conn.Durability, opts ...redistest.Option) (inside, outside *isolatedWriter, cut time.Time) {
	var network *faultproxy.Proxy
	s := redistest.StartSentinelBehind(t, func(addr string) string {
		network = faultproxy.New(t, addr)
		return network.Addr()
	}, 2, 3, 2, opts...)
	old := s.Nodes()[0]
	url := fmt.Sprintf("redis+sentinel://%s/%s", strings.Join(s.SentinelAddrs(), ","), s.MasterName())
	options := func(o *redisstore.Options) { o.Durability, o.WaitTimeout = class, 300*time.Millisecond }
	w := storetest.NewWorld(t, newObserver(t, old, url), asOptions(t, url), options)
	inside = startIsolatedWriter(t, "inside", w, w.Open(options, func(o *redisstore.Options) { o.Client = dialRedis(t, old.URL()) }))
	outside = startIsolatedWriter(t, "outside", w, w.Store)
	inside.awaitAcknowledged(30)
	outside.awaitAcknowledged(30)

	network.Blackhole(faultproxy.Both)
	cut = time.Now()
	s.WaitFailover(old.Addr())
	outside.awaitAcknowledged(outside.countAcknowledged() + 30)
	if class == conn.DurabilityReplica {
		redistest.Eventually(t, redistest.Patience, "refusals of the old primary", func(context.Context) error {
			return inside.refusalError()
		})
	} else {
		inside.awaitAcknowledged(inside.countAcknowledged() + 30)
	}
	inside.stopWriting()
	outside.stopWriting()
	network.Pass()
	redistest.Eventually(t, redistest.Patience, "the old primary is a replica", func(ctx context.Context) error {
		text, err := old.Client().Info(ctx, "replication").Result()
		if err == nil && !(strings.Contains(text, "role:slave") && strings.Contains(text, "master_link_status:up")) {
			err = errors.New("not yet")
		}
		return err
	})
	for _, writer := range []*isolatedWriter{inside, outside} {
		writer.lost = missingJobs(t, w, writer.acked)
	}
	t.Logf("inside: %d acknowledged, %d lost; outside: %d acknowledged, %d lost", len(inside.acked), len(inside.lost),
		len(outside.acked), len(outside.lost))
	return inside, outside, cut
}

// missingJobs are the jobs that are not stored.
func missingJobs(t *testing.T, w *storetest.World, ids []string) (lost []string) {
	t.Helper()
	for _, id := range ids {
		if w.Get(id) == nil {
			lost = append(lost, id)
		}
	}
	return lost
}

// isolatedWriter creates jobs one after the other and notes the answers.
type isolatedWriter struct {
	t       *testing.T
	name    string
	cancel  context.CancelFunc
	working sync.WaitGroup

	mu          sync.Mutex
	acked       []string
	last        time.Time // when what was acknowledged last was asked for
	unconfirmed time.Time // the first answer of this kind
	noReplicas  time.Time
	lost        []string // found out in the end
}

func startIsolatedWriter(t *testing.T, name string, w *storetest.World, s *redisstore.Store) *isolatedWriter {
	ctx, cancel := context.WithCancel(context.Background())
	x := &isolatedWriter{t: t, name: name, cancel: cancel}
	x.working.Go(func() {
		pace := time.NewTicker(5 * time.Millisecond)
		defer pace.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			d := storetest.Once(fmt.Sprintf("%s-%d", name, i), time.Hour)
			call, stop := context.WithTimeout(context.Background(), time.Second)
			asked := time.Now()
			x.noteWrite(d.ID, asked, storetest.Create(call, s, s.ShardOf(d.Key), []job.Record{w.Record(d)}).Err)
			stop()
			<-pace.C
		}
	})
	t.Cleanup(x.stopWriting)
	return x
}

func (x *isolatedWriter) noteWrite(id string, asked time.Time, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case err == nil:
		x.acked, x.last = append(x.acked, id), asked
	case errors.Is(err, job.ErrDurability):
		if x.unconfirmed.IsZero() {
			x.unconfirmed = time.Now()
		}
	case errors.Is(err, job.ErrUnavailable):
		if x.noReplicas.IsZero() && strings.Contains(err.Error(), "NOREPLICAS") {
			x.noReplicas = time.Now()
		}
	default:
		x.t.Errorf("%s: create: %v", x.name, err)
	}
}

func (x *isolatedWriter) stopWriting() {
	x.cancel()
	x.working.Wait()
}

func (x *isolatedWriter) countAcknowledged() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.acked)
}

// refusalError answers nil once both kinds of refusal were met.
func (x *isolatedWriter) refusalError() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unconfirmed.IsZero() || x.noReplicas.IsZero() {
		return fmt.Errorf("unconfirmed at %v, NOREPLICAS at %v", x.unconfirmed, x.noReplicas)
	}
	return nil
}

// awaitAcknowledged waits until so many creations were acknowledged.
func (x *isolatedWriter) awaitAcknowledged(n int) {
	x.t.Helper()
	redistest.Eventually(x.t, redistest.Patience, x.name+" creates jobs", func(context.Context) error {
		if got := x.countAcknowledged(); got < n {
			return fmt.Errorf("%d of %d are acknowledged", got, n)
		}
		return nil
	})
}
