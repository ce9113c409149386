package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Workers name the queues that they serve: however many, the series stay bounded, and
// the sums are right.
func TestSeriesOfSlotsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		const beyond = 7
		for i := range maxQueues + beyond {
			hello := job.Hello{WorkerID: fmt.Sprint(i), Namespace: "zz", Queues: []string{fmt.Sprintf("q%03d", i)}, Slots: 2, Epoch: 1}
			if i == 0 { // one that is really called so, and not beyond the bound
				hello.Namespace, hello.Queues = "other", []string{"other"}
			}
			if _, err := b.d.Connect(hello, &fakeStream{}); err != nil {
				t.Fatal(err)
			}
		}
		reg := prometheus.NewRegistry()
		reg.MustRegister(slotCollector{b.d})
		if n, err := testutil.GatherAndCount(reg, "fermata_dispatch_sessions"); err != nil || n != maxQueues {
			t.Errorf("%d series of sessions (%v), want %d", n, err, maxQueues)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		sums := make(map[string]float64)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if strings.Contains(m.String(), `"other"`) {
					sums[f.GetName()] += m.GetGauge().GetValue()
				}
			}
		}
		if sums["fermata_dispatch_sessions"] != beyond+1 || sums["fermata_dispatch_slots"] != 2*(beyond+1) {
			t.Errorf("of all others: %v, want %d sessions and %d slots", sums, beyond+1, 2*(beyond+1))
		}
	})
}

// TestServedQueuesAreReported: when the first worker of a queue comes and its last one goes, and
// not when one is replaced by its next session.
func TestServedQueuesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var told []string
		b.d.o.OnServed = func(namespace, queue string, served bool) {
			told = append(told, fmt.Sprintf("%s/%s %v", namespace, queue, served))
		}
		connect := func(worker string, epoch uint32, queues ...string) *Session {
			s, err := b.d.Connect(job.Hello{WorkerID: worker, Namespace: "ns", Queues: queues, Slots: 1, Epoch: epoch}, &fakeStream{})
			if err != nil {
				t.Fatal(err)
			}
			return s.(*Session)
		}
		first := connect("one", 1, "a", "b")
		second := connect("two", 1, "b")
		again := connect("one", 2, "a", "b")
		first.Close("replaced", nil)
		again.Close("gone", nil)
		again.Close("gone", nil)
		second.Close("gone", nil)
		if got := strings.Join(told, ", "); got != "ns/a true, ns/b true, ns/a false, ns/b false" {
			t.Errorf("told: %s", got)
		}
	})
}
