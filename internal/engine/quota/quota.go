package quota

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// DefaultEvery is the least pause between two censuses.
const DefaultEvery = 10 * time.Second

const (
	// checksPerPause is how many times in a pause each node checks whether a census is due, so that another node
	// soon replaces one that dies.
	checksPerPause = 4
	// censusShare of the time that a census may take: one in so many.
	censusShare = 50
	// maxSeries bounds the namespaces that have metrics: those nearest to their limit.
	maxSeries = 200
)

// Store keeps the counts of a measure.
type Store interface {
	// Reserve counts up to n more, as many as the limit leaves.
	Reserve(ctx context.Context, namespace string, n, limit int) (granted, count int, err error)
	Return(ctx context.Context, namespace string, n int) error
	// Counts are all counts, and whether there has been a census.
	Counts(ctx context.Context) (counts map[string]int, counted bool, err error)
	// Census corrects the counts of namespaces, unless another census began less than a pause ago, or begins
	// meanwhile. began reports whether this call did one.
	Census(ctx context.Context, every time.Duration, want func(namespace string) bool) (began bool, err error)
}

// Measure is the quantity that a quota limits.
type Measure struct {
	name        string
	used, limit *prometheus.Desc
}

// Measures.
var (
	Jobs = &Measure{
		"jobs",
		newGaugeDesc("fermata_namespace_jobs", "Jobs of a namespace that has a limit of jobs, in the "+
			"whole cluster."),
		newGaugeDesc("fermata_namespace_jobs_limit", "Maximum number of jobs of a namespace."),
	}
	JobBytes = &Measure{
		"job bytes",
		newGaugeDesc("fermata_namespace_job_bytes", "Bytes of the jobs of a namespace that has a limit of bytes, "+
			"in the whole cluster: ids, stored definitions, histories and dead letters."),
		newGaugeDesc("fermata_namespace_job_bytes_limit", "Maximum number of bytes of a namespace's jobs."),
	}
)

func newGaugeDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"namespace"}, nil)
}

// Options of a [Quota]. Store, Limit and Limited are required.
type Options struct {
	// Measure is the quantity that Store counts. Default [Jobs].
	Measure *Measure
	Store   Store
	// Limit returns how much a namespace may have; 0 is no limit. Limited reports whether any namespace has a
	// limit. Both are called each time.
	Limit   func(namespace string) int
	Limited func() bool
	// Every is the least pause between two censuses. Default [DefaultEvery].
	Every      time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Quota bounds the jobs of namespaces by a measure. It is safe for concurrent use.
type Quota struct {
	options       Options
	censusPauseNS atomic.Int64 // until the next census, ns
	counts        atomic.Pointer[map[string]int]
	// full are the namespaces that have as much as they may have, by the last look; nil: none.
	full atomic.Pointer[map[string]bool]
}

// New makes a quota. [Quota.Run] keeps its counts right.
func New(o Options) (*Quota, error) {
	if o.Store == nil || o.Limit == nil || o.Limited == nil {
		return nil, errors.New("quota: Store, Limit and Limited are required")
	}
	if o.Every <= 0 {
		o.Every = DefaultEvery
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Measure == nil {
		o.Measure = Jobs
	}
	q := &Quota{options: o}
	q.censusPauseNS.Store(int64(o.Every))
	if o.Registerer == nil {
		return q, nil
	}
	return q, o.Registerer.Register(q)
}

// Limit returns how much a namespace may have; 0 is no limit.
func (q *Quota) Limit(namespace string) int { return q.options.Limit(namespace) }

// Used returns how much a namespace had when this node last looked; false if its namespace has no limit, or was not
// counted yet.
func (q *Quota) Used(namespace string) (int, bool) {
	counts := q.counts.Load()
	if counts == nil {
		return 0, false
	}
	n, ok := (*counts)[namespace]
	return n, ok
}

// Limited reports whether any namespace has a limit.
func (q *Quota) Limited() bool { return q.options.Limited() }

// Full reports whether a namespace had as much as it may have when this node last looked.
func (q *Quota) Full(namespace string) bool {
	full := q.full.Load()
	return full != nil && (*full)[namespace]
}

// Reserve counts up to n more, as many as the limit leaves.
func (q *Quota) Reserve(ctx context.Context, namespace string, n, limit int) (granted int, err error) {
	granted, _, err = q.options.Store.Reserve(ctx, namespace, n, limit)
	return granted, err
}

// noLimit is a limit that no count reaches.
const noLimit = 1 << 53

// Take counts n more, also beyond the limit: what is stored already. If that fails the next census does it.
func (q *Quota) Take(ctx context.Context, namespace string, n int) {
	if _, _, err := q.options.Store.Reserve(ctx, namespace, n, noLimit); err != nil {
		q.options.Logger.Debug("failed to count what was stored, count too low until the next census",
			"measure", q.options.Measure.name, "namespace", namespace, "by", n, "error", err)
	}
}

// Return takes n off the count. If that fails the next census does it.
func (q *Quota) Return(ctx context.Context, namespace string, n int) {
	if err := q.options.Store.Return(ctx, namespace, n); err != nil {
		q.options.Logger.Debug("failed to return a reservation, count too high until the next census",
			"measure", q.options.Measure.name, "namespace", namespace, "by", n, "error", err)
	}
}

// Run takes a census now and then, until ctx ends.
func (q *Quota) Run(ctx context.Context) error {
	failing := false
	for {
		began, err := q.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		// If no census was due, nothing is known about whether one succeeds again.
		if (err != nil) != failing && (err != nil || began) {
			failing = err != nil
			if failing {
				q.options.Logger.Warn("quota census failed, using the last counts",
					"measure", q.options.Measure.name, "error", err)
			} else {
				q.options.Logger.Info("quota census recovered", "measure", q.options.Measure.name)
			}
		}
		wait := q.options.Every / checksPerPause
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}

// Refresh takes a census if one is due, and reads the counts.
func (q *Quota) Refresh(ctx context.Context) error {
	_, err := q.look(ctx)
	return err
}

// look is Look that also reports whether a census was due.
func (q *Quota) look(ctx context.Context) (began bool, err error) {
	if !q.options.Limited() {
		q.counts.Store(nil)
		q.full.Store(nil)
		return false, nil
	}
	start := time.Now()
	began, err = q.options.Store.Census(ctx, time.Duration(q.censusPauseNS.Load()),
		func(namespace string) bool { return q.options.Limit(namespace) > 0 })
	if began {
		// Also when another node's overtook it: they would overtake each other for ever.
		q.censusPauseNS.Store(int64(max(q.options.Every, censusShare*time.Since(start))))
	}
	if err != nil {
		return began, err
	}
	counts, _, err := q.options.Store.Counts(ctx)
	if err == nil {
		q.counts.Store(&counts)
		q.updateFull(counts)
	}
	return began, err
}

// updateFull finds the namespaces that have as much as they may have.
func (q *Quota) updateFull(counts map[string]int) {
	full := map[string]bool{}
	for namespace, n := range counts {
		if limit := q.options.Limit(namespace); limit > 0 && n >= limit {
			full[namespace] = true
		}
	}
	if len(full) == 0 {
		q.full.Store(nil)
		return
	}
	q.full.Store(&full)
}

// Describe makes a Quota a collector of its counts.
func (q *Quota) Describe(out chan<- *prometheus.Desc) {
	out <- q.options.Measure.used
	out <- q.options.Measure.limit
}

// Collect reports the namespaces that are nearest to their limits.
func (q *Quota) Collect(out chan<- prometheus.Metric) {
	counts := q.counts.Load()
	if counts == nil {
		return
	}
	type use struct {
		namespace   string
		used, limit float64
	}
	var uses []use
	for namespace, n := range *counts {
		if limit := q.options.Limit(namespace); limit > 0 {
			uses = append(uses, use{namespace, float64(n), float64(limit)})
		}
	}
	slices.SortFunc(uses, func(a, b use) int { return cmp.Compare(b.used/b.limit, a.used/a.limit) })
	for _, u := range uses[:min(len(uses), maxSeries)] {
		out <- prometheus.MustNewConstMetric(q.options.Measure.used, prometheus.GaugeValue, u.used, u.namespace)
		out <- prometheus.MustNewConstMetric(q.options.Measure.limit, prometheus.GaugeValue, u.limit, u.namespace)
	}
}
