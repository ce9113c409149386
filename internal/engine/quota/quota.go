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
	// looks is how many times in a pause each node looks whether a census is due: one
	// whose node dies is made up for by another.
	looks = 4
	// share of the time that a census may take: one in so many.
	share = 50
	// maxSeries bounds the namespaces that have metrics: those nearest to their limit.
	maxSeries = 200
)

// Store keeps the counts of a measure.
type Store interface {
	// Take counts up to n more, as many as the limit leaves.
	Take(ctx context.Context, namespace string, n, limit int) (granted, count int, err error)
	Give(ctx context.Context, namespace string, n int) error
	// Counts are all counts, and whether there has been a census.
	Counts(ctx context.Context) (counts map[string]int, counted bool, err error)
	// Census puts the counts of namespaces right, unless another one began less than a
	// pause ago, or begins meanwhile; began tells whether this one did.
	Census(ctx context.Context, every time.Duration, want func(namespace string) bool) (began bool, err error)
}

// Measure is what a quota bounds.
type Measure struct {
	name        string
	used, limit *prometheus.Desc
}

// Measures.
var (
	Jobs = &Measure{
		"jobs",
		describe("fermata_namespace_jobs", "Jobs of a namespace that has a limit of them, in the whole cluster."),
		describe("fermata_namespace_jobs_limit", "How many jobs a namespace may have."),
	}
	JobBytes = &Measure{
		"job bytes",
		describe("fermata_namespace_job_bytes", "Bytes of the jobs of a namespace that has a limit of them, in the whole cluster: ids, stored definitions, histories and dead letters."),
		describe("fermata_namespace_job_bytes_limit", "How many bytes the jobs of a namespace may have."),
	}
)

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"namespace"}, nil)
}

// Options of a [Quota]. Store, Limit and Limited are required.
type Options struct {
	// Measure is what Store counts. Default [Jobs].
	Measure *Measure
	Store   Store
	// Limit is how much a namespace may have; 0 is no limit. Limited reports whether
	// any has one. Both are asked anew each time.
	Limit   func(namespace string) int
	Limited func() bool
	// Every is the least pause between two censuses. Default [DefaultEvery].
	Every      time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Quota bounds the jobs of namespaces by a measure. It is safe for concurrent use.
type Quota struct {
	o     Options
	pause atomic.Int64 // until the next census, ns
	now   atomic.Pointer[map[string]int]
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
	q := &Quota{o: o}
	q.pause.Store(int64(o.Every))
	if o.Registerer == nil {
		return q, nil
	}
	return q, o.Registerer.Register(q)
}

// Limit is how much a namespace may have; 0 is no limit.
func (q *Quota) Limit(namespace string) int { return q.o.Limit(namespace) }

// Limited tells whether any namespace has a limit.
func (q *Quota) Limited() bool { return q.o.Limited() }

// Full reports whether a namespace had as much as it may have when this node last looked.
func (q *Quota) Full(namespace string) bool {
	full := q.full.Load()
	return full != nil && (*full)[namespace]
}

// Take counts up to n more, as many as the limit leaves.
func (q *Quota) Take(ctx context.Context, namespace string, n, limit int) (granted int, err error) {
	granted, _, err = q.o.Store.Take(ctx, namespace, n, limit)
	return granted, err
}

// Give takes n off the count. If that fails the next census does it.
func (q *Quota) Give(ctx context.Context, namespace string, n int) {
	if err := q.o.Store.Give(ctx, namespace, n); err != nil {
		q.o.Logger.Debug("failed to lower the count of a namespace: it is too high until the next census", "measure", q.o.Measure.name, "namespace", namespace, "by", n, "error", err)
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
		// A look at which no census was due does not say that one succeeds again.
		if (err != nil) != failing && (err != nil || began) {
			if failing = err != nil; failing {
				q.o.Logger.Warn("failed to count what namespaces have: limits go by the last count", "measure", q.o.Measure.name, "error", err)
			} else {
				q.o.Logger.Info("what namespaces have is counted again", "measure", q.o.Measure.name)
			}
		}
		wait := q.o.Every / looks
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}

// Look takes a census if one is due, and reads the counts.
func (q *Quota) Look(ctx context.Context) error {
	_, err := q.look(ctx)
	return err
}

// look is Look that reports whether a census was due.
func (q *Quota) look(ctx context.Context) (began bool, err error) {
	if !q.o.Limited() {
		q.now.Store(nil)
		q.full.Store(nil)
		return false, nil
	}
	start := time.Now()
	began, err = q.o.Store.Census(ctx, time.Duration(q.pause.Load()), func(namespace string) bool { return q.o.Limit(namespace) > 0 })
	if began {
		// Also when another node's overtook it: they would overtake each other for ever.
		q.pause.Store(int64(max(q.o.Every, share*time.Since(start))))
	}
	if err != nil {
		return began, err
	}
	counts, _, err := q.o.Store.Counts(ctx)
	if err == nil {
		q.now.Store(&counts)
		q.noteFull(counts)
	}
	return began, err
}

// noteFull finds the namespaces that have as much as they may have.
func (q *Quota) noteFull(counts map[string]int) {
	full := map[string]bool{}
	for namespace, n := range counts {
		if limit := q.o.Limit(namespace); limit > 0 && n >= limit {
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
	out <- q.o.Measure.used
	out <- q.o.Measure.limit
}

// Collect reports the namespaces that are nearest to their limits.
func (q *Quota) Collect(out chan<- prometheus.Metric) {
	counts := q.now.Load()
	if counts == nil {
		return
	}
	type use struct {
		namespace   string
		used, limit float64
	}
	var uses []use
	for namespace, n := range *counts {
		if limit := q.o.Limit(namespace); limit > 0 {
			uses = append(uses, use{namespace, float64(n), float64(limit)})
		}
	}
	slices.SortFunc(uses, func(a, b use) int { return cmp.Compare(b.used/b.limit, a.used/a.limit) })
	for _, u := range uses[:min(len(uses), maxSeries)] {
		out <- prometheus.MustNewConstMetric(q.o.Measure.used, prometheus.GaugeValue, u.used, u.namespace)
		out <- prometheus.MustNewConstMetric(q.o.Measure.limit, prometheus.GaugeValue, u.limit, u.namespace)
	}
}
