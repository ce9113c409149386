package acceptance

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/stalltest"
)

// pulse distinguishes the machine's stalls from the cluster's: it watches the processor, the
// disk and what Redis servers take to answer nothing in particular.
type stallWatch struct{ *stalltest.Watch }

// stalled is how long the machine has to stand still to excuse what is late; the scripts
// of the cluster are bounded to a fraction of it.
const stalled = 250 * time.Millisecond

func startStallWatch(t testing.TB) *stallWatch {
	t.Helper()
	disk, err := os.Create(filepath.Join(t.TempDir(), "pulse"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = disk.Close() })
	p := &stallWatch{stalltest.Start(t)}
	p.Ask(10*stalltest.Beat, func(context.Context) error {
		_, err := disk.WriteAt([]byte{0}, 0)
		return errors.Join(err, disk.Sync())
	})
	return p
}

// pingServers has it look at these servers too.
func (p *stallWatch) pingServers(clients ...*redis.Client) {
	for _, client := range clients {
		p.Ask(stalltest.Beat, func(ctx context.Context) error { return client.Ping(ctx).Err() })
	}
}

// stallFaults are the stalls so far.
func (p *stallWatch) stallFaults() (all []historycheck.Fault) {
	for _, s := range p.Seen() {
		if s.Length() >= stalled {
			all = append(all, historycheck.Fault{
				Name: "machine stalled", FromNS: s.From.UnixNano(), ToNS: s.To.UnixNano(), Harmless: s.Length() < time.Second,
			})
		}
	}
	return all
}

// lagsWithoutStalls leaves out what stalls of the machine delayed.
func (p *stallWatch) lagsWithoutStalls(lags []historycheck.Lag) []historycheck.Lag {
	stalls := p.stallFaults()
	return slices.DeleteFunc(slices.Clone(lags), func(l historycheck.Lag) bool {
		return slices.ContainsFunc(stalls, func(f historycheck.Fault) bool {
			return f.FromNS <= l.AtNS && l.AtNS-int64(l.Lag) <= f.ToNS+int64(time.Second)
		})
	})
}
