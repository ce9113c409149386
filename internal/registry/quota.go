package registry

import (
	"context"

	"github.com/fermata-io/fermata/internal/job"
)

// Quota bounds the number of jobs of each namespace.
type Quota interface {
	// Limited tells whether any namespace has a limit. It must be cheap.
	Limited() bool
	// Limit is how many jobs a namespace may have; 0 is no limit.
	Limit(namespace string) int
	// Take counts up to n new jobs, as many as the limit leaves.
	Take(ctx context.Context, namespace string, n, limit int) (granted int, err error)
	// Give takes jobs off the count again.
	Give(ctx context.Context, namespace string, n int)
}

// reservation is what the jobs of one call have been counted for before they are
// written. Who dies in between, or hears no answer, leaves the count too high until
// the next census.
type reservation struct {
	quota Quota
	taken map[string]int // by namespace
}

// reserve counts jobs that are to be created, and returns an error for each that is one
// too many. Where there are too many, it looks for those that exist: to register a job
// again needs no room.
func (r *Registry) reserve(ctx context.Context, keys []job.Key) (res reservation, faults []error) {
	res, faults = reservation{r.o.Quota, map[string]int{}}, make([]error, len(keys))
	if !r.limited() {
		return res, faults
	}
	byNamespace := map[string][]int{}
	for i, key := range keys {
		if len(job.ValidateKey(key)) == 0 { // else it is not going to be created
			byNamespace[key.Namespace] = append(byNamespace[key.Namespace], i)
		}
	}
	for namespace, places := range byNamespace {
		limit := res.quota.Limit(namespace)
		if limit == 0 {
			continue
		}
		granted, err := res.quota.Take(ctx, namespace, len(places), limit)
		res.taken[namespace] = granted
		if err == nil && granted < len(places) {
			err = r.refuse(ctx, keys, places, faults, granted, limit)
		}
		if err != nil {
			for _, i := range places {
				faults[i] = err
			}
		}
	}
	return res, faults
}

// refuse gives what was granted to the first jobs that do not exist, and an error to the
// others of them.
func (r *Registry) refuse(ctx context.Context, keys []job.Key, places []int, faults []error, granted, limit int) error {
	asked := make([]job.Key, len(places))
	for k, i := range places {
		asked[k] = keys[i]
	}
	there, err := r.o.Store.Get(ctx, asked)
	if err != nil {
		return err
	}
	for k, i := range places {
		switch {
		case there[k] != nil:
		case granted > 0:
			granted--
		default:
			faults[i] = &job.QuotaError{Namespace: keys[i].Namespace, Limit: limit}
		}
	}
	return nil
}

// settle gives back what was taken for more jobs than may have been created.
func (res reservation) settle(ctx context.Context, created map[string]int) {
	for namespace, n := range res.taken {
		if spare := n - created[namespace]; spare > 0 {
			res.quota.Give(ctx, namespace, spare)
		}
	}
}

// deleted takes a job off the count of its namespace.
func (r *Registry) deleted(ctx context.Context, key job.Key) {
	if r.limited() && r.o.Quota.Limit(key.Namespace) > 0 {
		r.o.Quota.Give(ctx, key.Namespace, 1)
	}
}

// limited tells whether the number of any jobs is limited.
func (r *Registry) limited() bool { return r.o.Quota != nil && r.o.Quota.Limited() }
