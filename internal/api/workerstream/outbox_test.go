package workerstream

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
)

// fakeMemory has so many bytes left.
type fakeMemory struct{ left int }

func (m *fakeMemory) TryTake(bytes int) bool {
	if bytes > m.left {
		return false
	}
	m.left -= bytes
	return true
}

func (m *fakeMemory) Give(bytes int) { m.left += bytes }

// TestOutboxTakesMemory: an outbox has memory for what waits beyond a little, refuses what finds none, and gives all
// back, whether it is sent or not.
func TestOutboxTakesMemory(t *testing.T) {
	const most = 1 << 20
	long := strings.Repeat("x", 400)
	messages := []func() job.WorkerMessage{
		func() job.WorkerMessage { return job.ResultAcks{{LeaseID: long}, {LeaseID: "short"}} },
		func() job.WorkerMessage { return job.Cancellation{LeaseIDs: []string{long, "short"}} },
		func() job.WorkerMessage { return foreignLeases{ids: []string{long, long, long}} },
		func() job.WorkerMessage { return foreignLeases{ids: []string{long}, live: true} },
		func() job.WorkerMessage { return job.HeartbeatAck{} },
		func() job.WorkerMessage {
			return job.Assignments{{Record: &job.Record{Definition: &job.Definition{Payload: []byte(long)}}}}
		},
	}
	for _, sent := range []bool{true, false} {
		memory := &fakeMemory{left: most}
		o := newOutbox(func() {})
		o.memory = memory
		o.setLimit(job.Hello{Slots: job.MaxSlots})
		var err error
		for n := 0; err == nil; n++ {
			if err = o.enqueue(messages[rand.N(len(messages))]()); n%5 == 0 && o.dequeue() != nil && n%2 == 0 {
				o.markSent()
			}
			if held := most - memory.left; held < o.waiting.bytes-freeBytes || held > max(0, o.waiting.bytes-freeBytes)+3*memoryStep {
				t.Fatalf("%d bytes are taken for %d", held, o.waiting.bytes)
			}
		}
		if !errors.Is(err, errUnreadMemory) || memory.left > memoryStep {
			t.Errorf("refused by %v with %d bytes left", err, memory.left)
		}
		if sent {
			for m := o.dequeue(); m != nil; m = o.dequeue() {
				if n := loadOf(m); n.items > maxMessageItems || n.bytes > maxMessageBytes+idOverhead*maxMessageItems {
					t.Errorf("a %T is %+v", m, n)
				}
			}
			if o.waiting != (load{}) {
				t.Errorf("%+v is left", o.waiting)
			}
		} else {
			o.dequeue()
			o.closeAndDrain()
			o.markSent()
		}
		if memory.left != most {
			t.Errorf("%d bytes were not given back", most-memory.left)
		}
	}
}

// TestOutboxHasSoManyBytes: also where nothing else bounds them.
func TestOutboxHasSoManyBytes(t *testing.T) {
	o := newOutbox(func() {})
	o.setLimit(job.Hello{Slots: 1})
	n := 0
	for ; o.enqueue(job.ResultAcks{{LeaseID: strings.Repeat("x", maxLeaseID)}}) == nil; n++ {
	}
	if bytes := n * maxLeaseID; bytes > 2<<20 || n < 2*(job.Hello{Slots: 1}).MaxLive() {
		t.Errorf("%d acknowledgements, of %d bytes", n, bytes)
	}
}

// TestLeaseIDsFit: the longest that there are.
func TestLeaseIDsFit(t *testing.T) {
	d := job.Definition{Key: job.Key{Namespace: strings.Repeat("n", job.MaxName), ID: strings.Repeat("j", job.MaxID)}}
	s := newLeaseSigner(make([]byte, MinKeyBytes), "s", job.Hello{})
	if n := len(s.Sign(job.LeaseID(d.Record(), 1<<64-1))); n > maxLeaseID/2 {
		t.Errorf("the id of a lease of a job has %d bytes, without what children add", n)
	}
}

// BenchmarkOutboxAcks queues and takes acknowledgements as of a busy worker.
func BenchmarkOutboxAcks(b *testing.B) {
	o := newOutbox(func() {})
	o.setLimit(job.Hello{Slots: 1000})
	acks := make(job.ResultAcks, 100)
	for i := range acks {
		acks[i].LeaseID = fmt.Sprintf("0123456789012345678901.1800000000123456@default/bench-%018d", i)
	}
	b.ReportAllocs()
	for b.Loop() {
		for range 3 {
			if err := o.enqueue(acks); err != nil {
				b.Fatal(err)
			}
		}
		for o.dequeue() != nil {
			o.markSent()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/300, "ns/ack")
}
