package dispatch

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// BenchmarkAttempts takes batches of 100 attempts through a whole life: reserved,
// delivered, started, reported, acknowledged.
func BenchmarkAttempts(b *testing.B) {
	const batch = 100
	store := &fakeStore{leases: map[job.RecordID]*fakeLease{}}
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
		leases[i] = job.Leased{Shard: i % 4, Record: key.Record(), Known: &job.Record{Definition: &def, State: job.State{Lane: def.Lane()}}}
	}
	results := make([]job.Result, 0, batch)
	b.ReportAllocs()
	for n := 0; b.Loop(); n += batch {
		now := time.Now()
		for i := range leases {
			leases[i].Known.State = leases[i].Known.State.Leased(uint64(now.UnixMicro()) + uint64(n+i))
			leases[i].Known.IndexMS = unixtime.MilliOf(now.Add(DefaultLeaseTTL))
		}
		d.Reserve("ns", "q", batch).Deliver(leases)
		for i, s := range sessions {
			s.HandleStarted(outs[i].ids)
			results = results[:0]
			for _, id := range outs[i].ids {
				results = append(results, job.Result{LeaseID: id, Outcome: job.OutcomeSucceeded})
			}
			s.HandleResults(results)
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

// BenchmarkManyWorkers takes single attempts through a whole life, among so many workers
// of one queue. What it costs should not depend on their number.
func BenchmarkManyWorkers(b *testing.B) {
	for _, workers := range []int{1, 100, 1000, 10000} {
		b.Run(fmt.Sprint(workers), func(b *testing.B) { oneByOne(b, workers, 1) })
	}
}

// BenchmarkWideWorkers takes attempts of one queue through a whole life, among workers that
// serve so many. What it costs should hardly depend on their number.
func BenchmarkWideWorkers(b *testing.B) {
	for _, queues := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(queues), func(b *testing.B) { oneByOne(b, 16, queues) })
	}
}

// oneByOne takes single attempts of one queue through a whole life.
func oneByOne(b *testing.B, workers, queues int) {
	store := &fakeStore{leases: map[job.RecordID]*fakeLease{}}
	d, err := New(Options{Node: "n", Store: store, Ledger: syncLedger{}, Observer: &discard{}})
	if err != nil {
		b.Fatal(err)
	}
	served := make([]string, queues)
	for i := range served {
		served[i] = fmt.Sprint("q", i)
	}
	out := &discard{}
	for i := range workers {
		if _, err := d.Connect(job.Hello{WorkerID: fmt.Sprint(i), Namespace: "ns", Queues: served, Slots: 10, Epoch: 1}, out); err != nil {
			b.Fatal(err)
		}
	}
	key := job.Key{Namespace: "ns", ID: "job"}
	def := job.Definition{Key: key, Queue: served[0], Handler: "h", Timeout: time.Minute}
	leases := []job.Leased{{Record: key.Record(), Known: &job.Record{Definition: &def, State: job.State{Lane: def.Lane()}}}}
	results := []job.Result{{Outcome: job.OutcomeSucceeded}}
	b.ReportAllocs()
	for n := uint64(0); b.Loop(); n++ {
		now := time.Now()
		leases[0].Known.State = leases[0].Known.State.Leased(uint64(now.UnixMicro()) + n)
		leases[0].Known.IndexMS = unixtime.MilliOf(now.Add(DefaultLeaseTTL))
		out.ids = out.ids[:0]
		d.Reserve("ns", def.Queue, 1).Deliver(leases)
		results[0].LeaseID = out.ids[0]
		s := d.mu.attempts[out.ids[0]].session
		s.HandleStarted(out.ids)
		s.HandleResults(results)
	}
}

// BenchmarkDemand asks for the free slots of so many queues, 64 a worker.
func BenchmarkDemand(b *testing.B) {
	for _, queues := range []int{64, 1024, 10048} {
		b.Run(fmt.Sprint(queues), func(b *testing.B) {
			d, err := New(Options{Node: "n", Store: &fakeStore{}, Ledger: syncLedger{}, Observer: &discard{}})
			if err != nil {
				b.Fatal(err)
			}
			for i := 0; i < queues; i += 64 {
				served := make([]string, 64)
				for j := range served {
					served[j] = fmt.Sprintf("q-%05d", i+j)
				}
				if _, err := d.Connect(job.Hello{WorkerID: fmt.Sprint(i), Namespace: "ns", Queues: served, Slots: 10, Epoch: 1}, &discard{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				d.Demand()
			}
		})
	}
}
