package dispatch

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fermata-io/fermata/internal/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// BenchmarkAttempts takes batches of 100 attempts through a whole life: reserved,
// delivered, started, reported, acknowledged.
func BenchmarkAttempts(b *testing.B) {
	const batch = 100
	store := &fakeStore{leases: map[string]*fakeLease{}}
	d, err := New(Options{Node: "n", Store: store, Ledger: syncLedger{}, Observer: &discard{}})
	if err != nil {
		b.Fatal(err)
	}
	var outs []*discard
	var sessions []*Session
	for i := range 4 {
		out := &discard{}
		outs = append(outs, out)
		s, err := d.Connect(job.Hello{WorkerID: fmt.Sprint(i), Namespace: "ns", Queues: []string{"q"}, Slots: 500, Epoch: 1}, out)
		if err != nil {
			b.Fatal(err)
		}
		sessions = append(sessions, s.(*Session))
	}
	leases := make([]job.Leased, batch)
	for i := range leases {
		key := job.Key{Namespace: "ns", ID: fmt.Sprintf("job-%04d", i)}
		def := job.Definition{Key: key, Queue: "q", Handler: "h", Timeout: time.Minute}
		leases[i] = job.Leased{Shard: i % 4, Record: key.Record(), Definition: &def, State: job.State{Lane: def.Lane()}}
	}
	results := make([]job.Result, 0, batch)
	b.ReportAllocs()
	for n := 0; b.Loop(); n += batch {
		now := time.Now()
		for i := range leases {
			leases[i].State = leases[i].State.Leased(uint64(now.UnixMicro()) + uint64(n+i))
			leases[i].DeadlineMS = now.Add(DefaultLeaseTTL).UnixMilli()
		}
		d.Reserve("ns", "q", batch).Deliver(leases)
		for i, s := range sessions {
			s.Started(outs[i].ids)
			results = results[:0]
			for _, id := range outs[i].ids {
				results = append(results, job.Result{LeaseID: id, Outcome: job.OutcomeSucceeded})
			}
			s.Results(results)
			outs[i].ids = outs[i].ids[:0]
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/job")
}

// discard takes everything and keeps nothing but lease ids.
type discard struct{ ids []string }

func (d *discard) Send(m job.WorkerMessage) error {
	leases, _ := m.(job.Assignments)
	for _, l := range leases {
		d.ids = append(d.ids, l.LeaseID)
	}
	return nil
}
func (*discard) Stop(error)           {}
func (*discard) Observe([]job.Notice) {}
