package registry

import (
	"cmp"
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Quota bounds the jobs of each namespace, by their number or by their bytes.
type Quota interface {
	// Limited reports whether any namespace has a limit. It must be cheap.
	Limited() bool
	// Limit returns how much a namespace may have; 0: no limit.
	Limit(namespace string) int
	// Reserve adds up to n to the count, as many as the limit leaves.
	Reserve(ctx context.Context, namespace string, n, limit int) (granted int, err error)
	// Return subtracts n from the count.
	Return(ctx context.Context, namespace string, n int)
}

// quotaMeasure is one of the quotas: the number of jobs, or their bytes.
type quotaMeasure struct {
	quota Quota
	bytes bool
}

// activeQuotas returns the quotas that limit any namespace at present.
func (r *Registry) activeQuotas() []quotaMeasure {
	var list []quotaMeasure
	if q := r.o.Quota; q != nil && q.Limited() {
		list = append(list, quotaMeasure{quota: q})
	}
	if r.limitsBytes() {
		list = append(list, quotaMeasure{quota: r.o.ByteQuota, bytes: true})
	}
	return list
}

func (r *Registry) limitsBytes() bool { return r.o.ByteQuota != nil && r.o.ByteQuota.Limited() }

// placeholderMS is a time that is encoded in as many bytes as the real one of a stored definition.
const placeholderMS = 1 << 40

// countedBytes returns how many bytes of a definition count for the quota; 0 if its namespace has no limit of
// bytes. Bookkeeping that edits add does not count: a deletion returns exactly what the creation took.
func (r *Registry) countedBytes(d *job.Definition) int {
	if d == nil || !r.limitsBytes() || r.o.ByteQuota.Limit(d.Namespace) == 0 {
		return 0
	}
	plain := *d
	plain.UpdateRequestIDs, plain.Revision, plain.Generation, plain.LastEdit = nil, 1, 1, job.Edit{}
	plain.CreatedMS = cmp.Or(d.CreatedMS, placeholderMS)
	plain.UpdatedMS, plain.AnchorMS = plain.CreatedMS, plain.CreatedMS
	return r.o.Store.DefinitionBytes(&plain)
}

// countedBytesSealed is countedBytes of a definition whose payload will be sealed if there are keys.
func (r *Registry) countedBytesSealed(d job.Definition) int {
	if s := r.o.Sealer; s != nil && d.PayloadKey == "" && r.limitsBytes() {
		d.Payload = append(d.Payload[:len(d.Payload):len(d.Payload)], make([]byte, job.SealOverhead)...)
		d.PayloadKey = s.EncryptingKeyID()
	}
	return r.countedBytes(&d)
}

// quotaAmount is what a definition takes of the quotas. The amount of a change may be negative.
type quotaAmount struct{ jobs, bytes int }

func (m quotaMeasure) amountOf(a quotaAmount) int {
	if m.bytes {
		return a.bytes
	}
	return a.jobs
}

// quotaDemand is what a definition that is to be stored takes of the quotas.
type quotaDemand struct {
	key job.Key
	quotaAmount
	// edits: it replaces a known definition, and the amount is the difference. replaces: it replaces a job that may
	// exist. Without both, a job that exists is not changed.
	edits, replaces bool
}

// quotaClaim is what one call has added to the counts of the quotas before it writes. If the process dies
// before the unused part is returned, or the reply of the write is lost, the counts are too high until the
// next census.
type quotaClaim struct {
	demands []quotaDemand
	taken   []quotaTaken
	until   time.Time // as long the call waits for turns of look-ups
}

// quotaTaken is what a claim has taken of one quota for a namespace.
type quotaTaken struct {
	quotaMeasure
	namespace string
	n         int
}

// claimQuota adds what is to be stored to the counts, and returns an error for each definition that does not
// fit. If something does not fit, it looks for jobs that exist: to register a job again takes nothing.
func (r *Registry) claimQuota(ctx context.Context, demands []quotaDemand) (claim quotaClaim, faults []error) {
	claim.demands, claim.until, faults = demands, time.Now().Add(maxTurnWait), make([]error, len(demands))
	for _, m := range r.activeQuotas() {
		for namespace, places := range groupByNamespace(demands, faults) {
			limit := m.quota.Limit(namespace)
			if limit == 0 {
				continue
			}
			needs, sum := m.neededAmounts(demands, places)
			t := quotaTaken{quotaMeasure: m, namespace: namespace}
			var err error
			if sum > 0 {
				t.n, err = m.quota.Reserve(ctx, namespace, sum, limit)
			}
			claim.taken = append(claim.taken, t)
			if err == nil && t.n < sum {
				err = r.refuseBeyondLimit(ctx, &claim, t, places, needs, faults, limit)
			}
			if err != nil {
				for _, i := range places {
					faults[i] = err
				}
			}
		}
	}
	return claim, faults
}

// groupByNamespace returns the indexes of the demands that may be stored, by namespace.
func groupByNamespace(demands []quotaDemand, faults []error) map[string][]int {
	all := map[string][]int{}
	for i, d := range demands {
		if faults[i] == nil && len(job.ValidateKey(d.key)) == 0 {
			all[d.key.Namespace] = append(all[d.key.Namespace], i)
		}
	}
	return all
}

// neededAmounts returns what demands take if none of their jobs exists.
func (m quotaMeasure) neededAmounts(demands []quotaDemand, places []int) (needs []int, sum int) {
	needs = make([]int, len(places))
	for k, i := range places {
		needs[k] = max(0, m.amountOf(demands[i].quotaAmount))
		sum += needs[k]
	}
	return needs, sum
}

// refuseBeyondLimit distributes what was granted to the first demands that it suffices for, and fails the
// others.
func (r *Registry) refuseBeyondLimit(ctx context.Context, claim *quotaClaim, t quotaTaken, places, needs []int,
	faults []error, limit int) error {
	if err := r.subtractExisting(ctx, claim, t, places, needs); err != nil {
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

// subtractExisting lowers needs by what existing jobs take. Only a limit of bytes on jobs that are replaced needs to
// know how large their definitions are.
func (r *Registry) subtractExisting(ctx context.Context, claim *quotaClaim, t quotaTaken, places, needs []int) error {
	var sought, replaced []job.Key
	var atSought, atReplaced []int
	for k, i := range places {
		switch d := &claim.demands[i]; {
		case d.edits:
		case t.bytes && d.replaces:
			replaced, atReplaced = append(replaced, d.key), append(atReplaced, k)
		default:
			sought, atSought = append(sought, d.key), append(atSought, k)
		}
	}
	if len(sought)+len(replaced) > 1 {
		end, err := r.lookups.begin(ctx, t.namespace, claim.until)
		if err != nil {
			return err
		}
		defer end()
	}
	err := r.findExisting(ctx, sought, func(n int) { needs[atSought[n]] = 0 })
	if err != nil {
		return err
	}
	return r.readJobs(ctx, replaced, func(n int, record *job.Record) {
		if record != nil {
			k := atReplaced[n]
			needs[k] = max(0, needs[k]-r.countedBytes(record.Definition))
		}
	})
}

// findExisting calls found for each job that exists, with its index. It reads states only: definitions may be large.
func (r *Registry) findExisting(ctx context.Context, keys []job.Key, found func(i int)) error {
	if len(keys) == 0 {
		return nil
	}
	entries := make([]job.IndexEntry, len(keys))
	for i, key := range keys {
		entries[i] = job.IndexEntry{Shard: r.o.Store.ShardOf(key), Record: key.Record()}
	}
	states, err := r.o.Store.ReadStates(ctx, entries)
	if err != nil {
		return err
	}
	for i, state := range states {
		if state != nil {
			found(i)
		}
	}
	return nil
}

// returnUnused returns what was taken beyond what was stored, or may have been. stored is by demand.
func (claim quotaClaim) returnUnused(ctx context.Context, stored []quotaAmount) {
	ctx = context.WithoutCancel(ctx)
	sums := map[string]quotaAmount{}
	for i, a := range stored {
		sum := sums[claim.demands[i].key.Namespace]
		sums[claim.demands[i].key.Namespace] = quotaAmount{sum.jobs + a.jobs, sum.bytes + a.bytes}
	}
	for _, t := range claim.taken {
		if spare := t.n - t.amountOf(sums[t.namespace]); spare > 0 {
			t.quota.Return(ctx, t.namespace, spare)
		}
	}
}

// returnDeleted subtracts deleted jobs from the counts of their namespaces.
func (r *Registry) returnDeleted(ctx context.Context, deleted ...*job.Definition) {
	measures := r.activeQuotas()
	if len(measures) == 0 {
		return
	}
	sums := map[string]quotaAmount{}
	for _, d := range deleted {
		sum := sums[d.Namespace]
		sums[d.Namespace] = quotaAmount{sum.jobs + 1, sum.bytes + r.countedBytes(d)}
	}
	for _, m := range measures {
		for namespace, sum := range sums {
			if m.quota.Limit(namespace) > 0 {
				m.quota.Return(context.WithoutCancel(ctx), namespace, m.amountOf(sum))
			}
		}
	}
}

// definitionEdit replaces a definition by another one.
type definitionEdit struct{ before, after *job.Definition }

// claimQuotaForEdits claims the bytes by which definitions grow. Bookkeeping of edits is counted by the next
// census only: it causes no refusal.
func (r *Registry) claimQuotaForEdits(ctx context.Context, edits []definitionEdit) (claim quotaClaim, faults []error) {
	if !r.limitsBytes() {
		return quotaClaim{}, make([]error, len(edits))
	}
	demands := make([]quotaDemand, len(edits))
	for i, e := range edits {
		demands[i] = quotaDemand{key: e.before.Key,
			quotaAmount: quotaAmount{bytes: r.countedBytes(e.after) - r.countedBytes(e.before)}, edits: true}
	}
	return r.claimQuota(ctx, demands)
}

// returnUnusedOfEdits returns what edits did not take, and what they freed. stored reports whether an edit was
// stored, or may have been.
func (claim quotaClaim) returnUnusedOfEdits(ctx context.Context, stored func(i int, shrinks bool) bool) {
	amounts := make([]quotaAmount, len(claim.demands))
	for i, d := range claim.demands {
		if stored(i, d.bytes < 0) {
			amounts[i] = d.quotaAmount
		}
	}
	claim.returnUnused(ctx, amounts)
}
