package telemetry

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// waiting starts runs, and returns what that added to the time that they were held for.
type waiting struct {
	t      *testing.T
	tel    *Telemetry
	pass   func(time.Duration)
	before map[string]float64
}

func newWaiting(t *testing.T) *waiting {
	tel, _, pass := clocked(slog.New(slog.DiscardHandler))
	return &waiting{t: t, tel: tel, pass: pass, before: map[string]float64{}}
}

func (w *waiting) starts(lag time.Duration, want map[string]float64) {
	w.t.Helper()
	w.tel.Observe([]job.Notice{{Kind: job.AttemptStarted, Key: someJob, Queue: "q", DueMS: 1000, AtMS: unixtime.Milli(1000 + lag.Milliseconds())}})
	added := map[string]float64{}
	for _, reason := range []string{"no_worker", "slot", "queue", "rate", "queue_paused"} {
		now := testutil.ToFloat64(w.tel.metrics.held.WithLabelValues("ns", "q", reason))
		if now != w.before[reason] {
			added[reason] = now - w.before[reason]
		}
		w.before[reason] = now
	}
	if !maps.EqualFunc(added, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
		w.t.Errorf("a run that started %v late was held %v, want %v", lag, added, want)
	}
}

// TestNoWorkerAndNoSlotAreDistinguished: of a lag, what lies in the last time without any worker in
// the cluster is counted as such, the rest as the want of a slot.
func TestNoWorkerAndNoSlotAreDistinguished(t *testing.T) {
	w := newWaiting(t)
	w.starts(time.Second, map[string]float64{"slot": 1}) // nothing is known of this queue
	w.tel.QueueServed("ns", "q", true)
	w.tel.QueueServed("ns", "q", false)
	w.pass(8 * time.Second)
	w.starts(4*time.Second, map[string]float64{"no_worker": 4}) // it lasts
	w.tel.QueueServed("ns", "q", true)
	w.tel.QueueServed("ns", "q", true)
	w.pass(2 * time.Second)
	w.starts(time.Second, map[string]float64{"slot": 1})
	w.starts(6*time.Second, map[string]float64{"no_worker": 4, "slot": 2})
	w.starts(16*time.Second, map[string]float64{"no_worker": 8, "slot": 8})
	w.starts(16*time.Millisecond, map[string]float64{"slot": 0.016})
}

// TestWorkersOfPeersCount: a queue is without a worker when no node has one.
func TestWorkersOfPeersCount(t *testing.T) {
	w := newWaiting(t)
	busy := []job.QueueDemand{{Namespace: "ns", Queue: "other"}, {Namespace: "ns", Queue: "q"}} // no slot is free
	w.tel.QueueServed("ns", "q", true)
	w.tel.PeerServes("b", busy)
	w.tel.PeerServes("c", busy)
	w.tel.PeerServes("b", busy)
	w.tel.QueueServed("ns", "q", false)
	w.tel.PeerServes("b", nil)
	w.tel.PeerServes("b", nil)
	w.pass(4 * time.Second)
	w.starts(2*time.Second, map[string]float64{"slot": 2}) // c has one
	w.tel.PeerServes("c", busy[:1])
	w.pass(4 * time.Second)
	w.tel.PeerServes("b", busy)
	w.pass(4 * time.Second)
	w.starts(16*time.Second, map[string]float64{"no_worker": 4, "slot": 12})
}

// TestLimitsAndSlotsAreDistinguished: refusals that follow one another are one wait.
func TestLimitsAndSlotsAreDistinguished(t *testing.T) {
	w := newWaiting(t)
	w.tel.QueueServed("ns", "q", true)
	w.pass(time.Minute)
	q := job.QueueKey{Namespace: "ns", Queue: "q"}
	for range 8 {
		w.tel.QueueLimited(q, job.LimitRate, 250*time.Millisecond)
		w.pass(500 * time.Millisecond)
	}
	w.starts(2*time.Second, map[string]float64{"rate": 1.75, "slot": 0.25})
	w.starts(8*time.Second, map[string]float64{"rate": 3.75, "slot": 4.25})
	w.pass(8 * time.Second)
	w.tel.QueueLimited(q, job.LimitConcurrency, 250*time.Millisecond)
	w.pass(250 * time.Millisecond)
	w.starts(time.Second, map[string]float64{"queue": 0.25, "slot": 0.75})
}

// TestAPauseIsDistinguishedFromOtherCauses: while a queue is paused nothing else would help.
func TestAPauseIsDistinguishedFromOtherCauses(t *testing.T) {
	w := newWaiting(t)
	q := job.QueueKey{Namespace: "ns", Queue: "q"}
	w.tel.QueueServed("ns", "q", true)
	w.pass(time.Minute)
	w.tel.QueuePaused(q, false) // of an unknown pause
	w.starts(time.Second, map[string]float64{"slot": 1})
	w.tel.QueueServed("ns", "q", false)
	w.pass(2 * time.Second)
	w.tel.QueuePaused(q, true)
	w.pass(8 * time.Second)
	w.starts(4*time.Second, map[string]float64{"queue_paused": 4}) // leased before
	w.tel.QueuePaused(q, false)
	w.pass(time.Second)
	w.tel.QueueServed("ns", "q", true)
	w.pass(time.Second)
	w.starts(16*time.Second, map[string]float64{"queue_paused": 8, "no_worker": 3, "slot": 5})
	w.starts(2*time.Second, map[string]float64{"no_worker": 1, "slot": 1})
}

// TestPausedQueuesAreShown: those that are summed up are not, as one of them is not all.
func TestPausedQueuesAreShown(t *testing.T) {
	tel, reg, _ := clocked(slog.New(slog.DiscardHandler))
	var stats []QueueSize
	for i := range MaxQueues + 10 {
		stats = append(stats, QueueSize{Namespace: "ns", Queue: fmt.Sprintf("q%03d", i), Backlog: 1, QueuePaused: i == 7 || i > MaxQueues})
	}
	stats = append(stats, QueueSize{Namespace: "ns", Queue: "q007", Backlog: 2}) // of another shard, counted before
	tel.SetQueues(stats)
	const want = `
# HELP fermata_queue_paused 1 for a paused queue that has records in the shards this node holds. Other queues have no series.
# TYPE fermata_queue_paused gauge
fermata_queue_paused{namespace="ns",queue="q007"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "fermata_queue_paused"); err != nil {
		t.Error(err)
	}
}

// TestRunsOfPausedQueuesAreNotOverdue: their wait is intended.
func TestRunsOfPausedQueuesAreNotOverdue(t *testing.T) {
	tel, reg, _ := clocked(slog.New(slog.DiscardHandler))
	tel.SetQueues([]QueueSize{
		{Namespace: "ns", Queue: "paused", Backlog: 3, Overdue: 3, QueuePaused: true},
		{Namespace: "ns", Queue: "short of slots", Backlog: 3, Overdue: 2},
	})
	const want = `
# HELP fermata_runs_overdue Runs that have waited for more than a second since they were due, in the shards this node holds; 0 for a paused queue.
# TYPE fermata_runs_overdue gauge
fermata_runs_overdue{namespace="ns",queue="paused"} 0
fermata_runs_overdue{namespace="ns",queue="short of slots"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "fermata_runs_overdue"); err != nil {
		t.Error(err)
	}
}

// TestWaitsAreBounded: names come from workers, however many they make up.
func TestWaitsAreBounded(t *testing.T) {
	tel, _, _ := clocked(slog.New(slog.DiscardHandler))
	for i := range 2 * maxWaits {
		tel.QueueServed("ns", fmt.Sprint(i), true)
		if i%2 == 0 {
			tel.QueueServed("ns", fmt.Sprint(i), false)
		}
	}
	if n := len(tel.waits.queues); n > maxWaits {
		t.Errorf("%d queues are remembered", n)
	}
}

// TestQueuesWithoutRoomDisplaceNone: when a peer loses more queues than are remembered, those that are stay so, and those
// that are not are not looked for in the whole table, one after the other.
func TestQueuesWithoutRoomDisplaceNone(t *testing.T) {
	tel, _, _ := clocked(slog.New(slog.DiscardHandler))
	var demand []job.QueueDemand
	for i := range 2*maxWaits + 1 {
		demand = append(demand, job.QueueDemand{Namespace: "ns", Queue: fmt.Sprintf("q%05d", i)})
	}
	tel.PeerServes("b", demand)
	tel.PeerServes("b", demand[1:])
	tel.PeerServes("b", nil)
	remembered := 0
	for i := range maxWaits {
		if tel.waits.queues[job.QueueKey{Namespace: "ns", Queue: demand[i].Queue}] != nil {
			remembered++
		}
	}
	if n := tel.waits.served + len(tel.waits.services); remembered != maxWaits || n != 0 {
		t.Errorf("%d of the first %d queues are remembered; %d count as served, want none", remembered, maxWaits, n)
	}
}

// TestQueuesThatGetRoomLaterAreServed: a queue counts as served although there was no room for its waits when a worker
// began to serve it, on this node or on a peer.
func TestQueuesThatGetRoomLaterAreServed(t *testing.T) {
	for name, serve := range map[string]func(tel *Telemetry, demand []job.QueueDemand){
		"a peer": func(tel *Telemetry, demand []job.QueueDemand) { tel.PeerServes("b", demand) },
		"this node": func(tel *Telemetry, demand []job.QueueDemand) {
			tel.QueueServed("ns", "q", len(demand) > 0)
		},
	} {
		w := newWaiting(t)
		var many []job.QueueDemand
		for i := range maxWaits {
			many = append(many, job.QueueDemand{Namespace: "other", Queue: fmt.Sprint(i)})
		}
		mail := []job.QueueDemand{{Namespace: "ns", Queue: "q"}}
		key := job.QueueKey{Namespace: "ns", Queue: "q"}
		w.tel.PeerServes("c", many)
		serve(w.tel, mail)
		w.tel.PeerServes("c", nil)
		w.pass(time.Minute)
		w.tel.QueuePaused(key, false) // from now on its waits are remembered
		serve(w.tel, mail)            // a report without a change
		if !w.tel.waits.isServed(key) {
			t.Errorf("the queue that %s serves counts as without a worker", name)
		}
		w.starts(4*time.Second, map[string]float64{"slot": 4})
		serve(w.tel, nil)
		w.pass(2 * time.Second)
		w.starts(4*time.Second, map[string]float64{"no_worker": 2, "slot": 2})
		if w.tel.waits.isServed(key) || len(w.tel.waits.services)+w.tel.waits.served != 0 {
			t.Errorf("the queue that %s no longer serves counts as served", name)
		}
	}
}

// TestABacklogWithoutWorkersIsUnserved: however many queues there are, what those that
// are summed up have workers for is not among it.
func TestABacklogWithoutWorkersIsUnserved(t *testing.T) {
	tel, reg, _ := clocked(slog.New(slog.DiscardHandler))
	var stats []QueueSize
	var ofPeer []job.QueueDemand
	for i := range MaxQueues + 10 {
		q := fmt.Sprintf("q%03d", i)
		stats = append(stats, QueueSize{Namespace: "ns", Queue: q, Backlog: 3})
		switch {
		case i%10 == 0: // no worker
		case i%2 == 0:
			tel.QueueServed("ns", q, true)
		default:
			ofPeer = append(ofPeer, job.QueueDemand{Namespace: "ns", Queue: q})
		}
	}
	tel.PeerServes("b", ofPeer)
	tel.SetQueues(stats)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum, other, series := 0.0, 0.0, 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "fermata_queue_unserved_backlog" {
				series++
				sum += m.GetGauge().GetValue()
				if strings.Contains(m.String(), OtherQueues) {
					other += m.GetGauge().GetValue()
				}
			}
		}
	}
	if series != MaxQueues+1 || sum != 3*(MaxQueues+10)/10 || other != 3 {
		t.Errorf("%d series that sum up to %v, %v of it of others", series, sum, other)
	}
}
