package registry

import (
	"cmp"
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Quota bounds the jobs of each namespace, by their number or by their bytes.
type Quota interface {
	// Limited reports whether any namespace has a limit. It must be cheap.
	Limited() bool
	// Limit is how much a namespace may have; 0 is no limit.
	Limit(namespace string) int
	// Take counts up to n more, as many as the limit leaves.
	Take(ctx context.Context, namespace string, n, limit int) (granted int, err error)
	// Give takes n off the count again.
	Give(ctx context.Context, namespace string, n int)
}

// measure is one of the quotas.
type measure struct {
	quota Quota
	bytes bool
}

// measures are the quotas by which any namespace has a limit at present.
func (r *Registry) measures() []measure {
	var list []measure
	if q := r.o.Quota; q != nil && q.Limited() {
		list = append(list, measure{quota: q})
	}
	if r.limitsBytes() {
		list = append(list, measure{quota: r.o.ByteQuota, bytes: true})
	}
	return list
}

func (r *Registry) limitsBytes() bool { return r.o.ByteQuota != nil && r.o.ByteQuota.Limited() }

// someTime takes as many bytes as the time that a definition has once it is stored.
const someTime = 1 << 40

// sizeOf is how many bytes a definition counts for, 0 where these have no limit. What edits leave
// in it for the registry's own use does not count: who deletes it gives back what was taken, and no more.
func (r *Registry) sizeOf(d *job.Definition) int {
	if d == nil || !r.limitsBytes() || r.o.ByteQuota.Limit(d.Namespace) == 0 {
		return 0
	}
	plain := *d
	plain.UpdateRequestIDs, plain.Revision, plain.Generation = nil, 1, 1
	plain.CreatedMS = cmp.Or(d.CreatedMS, someTime)
	plain.UpdatedMS, plain.AnchorMS = plain.CreatedMS, plain.CreatedMS
	return r.o.Store.DefinitionBytes(&plain)
}

// sizeSealed is sizeOf a definition whose payload is going to be sealed if there are keys.
func (r *Registry) sizeSealed(d job.Definition) int {
	if s := r.o.Sealer; s != nil && d.PayloadKey == "" && r.limitsBytes() {
		d.Payload = append(d.Payload[:len(d.Payload):len(d.Payload)], make([]byte, job.SealOverhead)...)
		d.PayloadKey = s.Current()
	}
	return r.sizeOf(&d)
}

// amount is what a definition takes of quotas, or a change of one, which may be less than
// nothing.
type amount struct{ jobs, bytes int }

func (m measure) of(a amount) int {
	if m.bytes {
		return a.bytes
	}
	return a.jobs
}

// demand is what a definition takes that is to be stored.
type demand struct {
	key job.Key
	amount
	// edits: it replaces one that is known, and amount is the change. Otherwise replaces:
	// it is put in the place of a job that may exist, which is left alone without it.
	edits, replaces bool
}

// reservation is what has been counted for one call before it writes. Who dies in between,
// or hears no answer, leaves the count too high until the next census.
type reservation struct {
	demands []demand
	taken   []taking
}

// taking is what a reservation has taken for a namespace.
type taking struct {
	measure
	namespace string
	n         int
}

// reserve counts what is to be stored, and returns an error for each definition that is
// too much. Where there is too much, it looks for jobs that exist: to register a job again
// takes nothing.
func (r *Registry) reserve(ctx context.Context, demands []demand) (res reservation, faults []error) {
	res.demands, faults = demands, make([]error, len(demands))
	for _, m := range r.measures() {
		for namespace, places := range byNamespace(demands, faults) {
			limit := m.quota.Limit(namespace)
			if limit == 0 {
				continue
			}
			needs, sum := m.needs(demands, places)
			t := taking{measure: m, namespace: namespace}
			var err error
			if sum > 0 {
				t.n, err = m.quota.Take(ctx, namespace, sum, limit)
			}
			res.taken = append(res.taken, t)
			if err == nil && t.n < sum {
				err = r.refuse(ctx, t, demands, places, needs, faults, limit)
			}
			if err != nil {
				for _, i := range places {
					faults[i] = err
				}
			}
		}
	}
	return res, faults
}

// byNamespace are the places of demands that may be stored.
func byNamespace(demands []demand, faults []error) map[string][]int {
	all := map[string][]int{}
	for i, d := range demands {
		if faults[i] == nil && len(job.ValidateKey(d.key)) == 0 {
			all[d.key.Namespace] = append(all[d.key.Namespace], i)
		}
	}
	return all
}

// needs are what demands take, if none of their jobs exists.
func (m measure) needs(demands []demand, places []int) (needs []int, sum int) {
	needs = make([]int, len(places))
	for k, i := range places {
		needs[k] = max(0, m.of(demands[i].amount))
		sum += needs[k]
	}
	return needs, sum
}

// refuse gives what was granted to the first demands that it is enough for, and an error to
// the others.
func (r *Registry) refuse(ctx context.Context, t taking, demands []demand, places, needs []int, faults []error, limit int) error {
	if err := r.lessPresent(ctx, t.measure, demands, places, needs); err != nil {
		return err
	}
	left := t.n
	for k, i := range places {
		if needs[k] > left {
			faults[i] = &job.QuotaError{Namespace: t.namespace, Limit: limit, Bytes: t.bytes}
			continue
		}
		left -= needs[k]
	}
	return nil
}

// lessPresent lowers needs by what the jobs take that exist.
func (r *Registry) lessPresent(ctx context.Context, m measure, demands []demand, places, needs []int) error {
	var asked []job.Key
	var at []int
	for k, i := range places {
		if !demands[i].edits {
			asked, at = append(asked, demands[i].key), append(at, k)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	there, err := r.o.Store.Get(ctx, asked)
	if err != nil {
		return err
	}
	for n, k := range at {
		switch record := there[n]; {
		case record == nil:
		case m.bytes && demands[places[k]].replaces:
			needs[k] = max(0, needs[k]-r.sizeOf(record.Definition))
		default:
			needs[k] = 0
		}
	}
	return nil
}

// settle gives back what was taken beyond what may have been stored, by demand.
func (res reservation) settle(ctx context.Context, stored []amount) {
	ctx = context.WithoutCancel(ctx)
	sums := map[string]amount{}
	for i, a := range stored {
		sum := sums[res.demands[i].key.Namespace]
		sums[res.demands[i].key.Namespace] = amount{sum.jobs + a.jobs, sum.bytes + a.bytes}
	}
	for _, t := range res.taken {
		if spare := t.n - t.of(sums[t.namespace]); spare > 0 {
			t.quota.Give(ctx, t.namespace, spare)
		}
	}
}

// release takes jobs that were deleted off the counts of their namespaces.
func (r *Registry) release(ctx context.Context, deleted ...*job.Definition) {
	measures := r.measures()
	if len(measures) == 0 {
		return
	}
	sums := map[string]amount{}
	for _, d := range deleted {
		sum := sums[d.Namespace]
		sums[d.Namespace] = amount{sum.jobs + 1, sum.bytes + r.sizeOf(d)}
	}
	for _, m := range measures {
		for namespace, sum := range sums {
			if m.quota.Limit(namespace) > 0 {
				m.quota.Give(context.WithoutCancel(ctx), namespace, m.of(sum))
			}
		}
	}
}

// edit replaces a definition by another one.
type edit struct{ before, after *job.Definition }

// reserveEdits counts the bytes by which definitions grow. What is kept with edits for the
// registry's own use is left to the census: it refuses nobody.
func (r *Registry) reserveEdits(ctx context.Context, edits []edit) (res reservation, faults []error) {
	if !r.limitsBytes() {
		return reservation{}, make([]error, len(edits))
	}
	demands := make([]demand, len(edits))
	for i, e := range edits {
		demands[i] = demand{key: e.before.Key, amount: amount{bytes: r.sizeOf(e.after) - r.sizeOf(e.before)}, edits: true}
	}
	return r.reserve(ctx, demands)
}

// settleEdits gives back what edits did not take, and what they made free. stored reports
// whether an edit was, or may have been, stored.
func (res reservation) settleEdits(ctx context.Context, stored func(i int, shrinks bool) bool) {
	amounts := make([]amount, len(res.demands))
	for i, d := range res.demands {
		if stored(i, d.bytes < 0) {
			amounts[i] = d.amount
		}
	}
	res.settle(ctx, amounts)
}
