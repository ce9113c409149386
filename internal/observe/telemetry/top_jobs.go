package telemetry

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/job"
)

// FailureDepths are the bounds by which failing jobs are counted: at least so many
// failed runs in a row.
var FailureDepths = []int64{1, 2, 3, 5, 10, 20}

// TopJobs are the worst jobs of the shards that a node holds.
type TopJobs struct {
	// Failing counts jobs by FailureDepths: at least so many failed runs in a row.
	Failing []int64
	// MostFailing and Latest are shown by name, where that was asked for.
	MostFailing, Latest []job.TopJob
}

// SetTopJobs replaces the exported worst jobs.
func (t *Telemetry) SetTopJobs(w TopJobs) { t.topJobs.now.Store(&w) }

var (
	byJob       = []string{"namespace", "queue", "job_id"} // not "job", which is Prometheus's own
	failingDesc = prometheus.NewDesc("fermata_failing_jobs",
		"Jobs with at least this many consecutive failed runs, in the shards this node holds. At most 1,000 jobs of "+
			"a shard are counted.", []string{"failures"}, nil)
	topFailuresDesc = prometheus.NewDesc("fermata_top_job_failures",
		"Consecutive failed runs of the jobs that fail longest, in the shards this node holds; --metrics-top-jobs "+
			"sets how many.", byJob, nil)
	topLagDesc = prometheus.NewDesc("fermata_top_job_lag_seconds",
		"How late the most overdue jobs are, in the shards this node holds; --metrics-top-jobs sets how "+
			"many.", byJob, nil)
)

// topJobsCollector exports the last result.
type topJobsCollector struct{ now atomic.Pointer[TopJobs] }

func (*topJobsCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{failingDesc, topFailuresDesc, topLagDesc} {
		out <- d
	}
}

func (w *topJobsCollector) Collect(out chan<- prometheus.Metric) {
	found := w.now.Load()
	if found == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for i, n := range found.Failing {
		gauge(failingDesc, float64(n), strconv.FormatInt(FailureDepths[i], 10))
	}
	for _, j := range found.MostFailing {
		gauge(topFailuresDesc, float64(j.State.Failures), j.Definition.Namespace, j.Definition.Queue, j.Definition.ID)
	}
	for _, j := range found.Latest {
		gauge(topLagDesc, j.Lag.Seconds(), j.Definition.Namespace, j.Definition.Queue, j.Definition.ID)
	}
}
