package dispatch

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

type metrics struct {
	delivered     prometheus.Counter
	acks          [job.AckNotFound + 1]prometheus.Counter
	lost          *prometheus.CounterVec
	returned      *prometheus.CounterVec
	timeouts      prometheus.Counter
	adopted       prometheus.Counter
	resubmitted   prometheus.Counter
	storeFailures prometheus.Counter
	settle        prometheus.Histogram

	refusedSessions, refusedQueues, rests, fullMemory prometheus.Counter
}

func newMetrics(r prometheus.Registerer, d *Dispatcher) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "fermata_dispatch_" + name, Help: help})
	}
	vector := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fermata_dispatch_" + name, Help: help},
			[]string{label})
	}
	acks := vector("result_acks_total", "Results acknowledged to workers, by status; stale is a result with a "+
		"token that is no longer valid.", "status")
	m := &metrics{
		delivered: counter("leases_delivered_total", "Leases sent to workers."),
		lost: vector("leases_lost_total",
			"Leases that ended without a result: expired (not renewed in time), lease_lost (refused by the store), "+
				"moved (taken to another node), refused (could not be taken over), abandoned (a lock or another unit "+
				"of the run was lost), disclaimed (the worker does not know the lease any more).", "reason"),
		returned: vector("leases_returned_total",
			"Leases returned before a handler started: unsent, worker (returned by the worker), closed (no session "+
				"left), late (no time left), gated (held up on the way to the worker).", "reason"),
		timeouts: counter("timeouts_total",
			"Attempts that this node ended because their worker did not answer in time."),
		adopted: counter("leases_adopted_total", "Leases taken over from an earlier session of their worker."),
		resubmitted: counter("resubmitted_total", "Results and returned leases that had to be submitted "+
			"again."),
		storeFailures: counter("store_failures_total", "Failed calls to renew leases or read records."),
		refusedSessions: counter("sessions_refused_total",
			"Sessions of workers that were refused because the sessions of the node, "+
				"or of their identity, take too much memory."),
		refusedQueues: counter("queues_refused_total",
			"Sessions of workers that were refused because the workers of the node, "+
				"or of their namespace or identity, serve too many queues."),
		rests: counter("session_rests_total",
			"Times that a session got no leases for up to 5 s because it had returned too many without starting them."),
		fullMemory: counter("attempt_memory_full_total",
			"Times that the workers of an identity got no leases for a while because their attempts "+
				"take as much memory of the node as they may."),
		settle: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fermata_dispatch_result_commit_seconds", Help: "Time from the arrival of a result until it is stored.",
			Buckets: prometheus.ExponentialBuckets(0.0002, 2, 16),
		}),
	}
	for status := range m.acks {
		m.acks[status] = acks.WithLabelValues(job.AckStatus(status).String())
	}
	for _, reason := range []string{"expired", "lease_lost", "moved", "refused", "abandoned", "disclaimed"} {
		m.lost.WithLabelValues(reason) // there from the start, so that the first one shows
	}
	for _, reason := range []string{"unsent", "worker", "closed", "late", "gated"} {
		m.returned.WithLabelValues(reason)
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.delivered, acks, m.lost, m.returned, m.timeouts, m.adopted, m.resubmitted, m.storeFailures, m.settle,
		m.refusedSessions, m.refusedQueues, m.rests, m.fullMemory,
		slotCollector{d},
	} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("dispatch: %w", err)
		}
	}
	return m, nil
}

var (
	slotsDesc = prometheus.NewDesc("fermata_dispatch_slots",
		"Slots of this node's workers by queue: free, or busy with an attempt. The free slots of a worker count "+
			"for each of its queues.",
		[]string{"namespace", "queue", "state"}, nil)
	sessionsDesc = prometheus.NewDesc("fermata_dispatch_sessions", "Open connections of workers, by queue.",
		[]string{"namespace", "queue"}, nil)
)

// slotCollector collects values that are counted anyway on each scrape.
type slotCollector struct{ d *Dispatcher }

func (s slotCollector) Describe(out chan<- *prometheus.Desc) {
	out <- slotsDesc
	out <- sessionsDesc
}

// maxQueues bounds the queues with series of their own, as internal/observe/telemetry does;
// the others are summed up under the namespace and queue "other".
const maxQueues = 200

func (s slotCollector) Collect(out chan<- prometheus.Metric) {
	for _, l := range limitQueues(s.d.QueueLoads()) {
		gauge := func(desc *prometheus.Desc, v int, labels ...string) {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(v),
				append([]string{l.Namespace, l.Queue}, labels...)...)
		}
		gauge(slotsDesc, l.Free, "free")
		gauge(slotsDesc, l.Running, "busy")
		gauge(sessionsDesc, l.Workers)
	}
}

// limitQueues sums up the queues beyond maxQueues; each namespace gets an equal share. A queue that is really
// named "other" is summed up as well: no series may come twice.
func limitQueues(loads []job.QueueLoad) []job.QueueLoad {
	if len(loads) <= maxQueues {
		return loads
	}
	shown := map[job.QueueKey]bool{}
	for _, l := range fairshare.Pick(loads, maxQueues, func(l job.QueueLoad) string { return l.Namespace }) {
		shown[job.QueueKey{Namespace: l.Namespace, Queue: l.Queue}] = true
	}
	other := job.QueueLoad{Namespace: "other", Queue: "other"}
	kept := make([]job.QueueLoad, 0, maxQueues+1)
	for _, l := range loads {
		if shown[job.QueueKey{Namespace: l.Namespace, Queue: l.Queue}] &&
			(l.Namespace != other.Namespace || l.Queue != other.Queue) {
			kept = append(kept, l)
			continue
		}
		other.Free += l.Free
		other.Running += l.Running
		other.Workers += l.Workers
	}
	return append(kept, other)
}
