package registry

import (
	"cmp"
	"context"
	"errors"

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
	// Take adds n to the count, also beyond the limit, and Return subtracts n.
	Take(ctx context.Context, namespace string, n int)
	Return(ctx context.Context, namespace string, n int)
	// Full reports whether a namespace had as much as it may have by the last look. It must be cheap.
	Full(namespace string) bool
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

// limitsBytesOf reports whether the bytes of a namespace have a limit.
func (r *Registry) limitsBytesOf(namespace string) bool {
	return r.limitsBytes() && r.o.ByteQuota.Limit(namespace) > 0
}

// countWrite returns how many bytes of a write count for the quota: none if its namespace has no limit of bytes.
// Bookkeeping that edits add does not count: a deletion returns exactly what the creation took.
func (r *Registry) countWrite(w job.Restoration) job.WrittenBytes {
	d := w.Record.Definition
	if !r.limitsBytesOf(d.Namespace) {
		return job.WrittenBytes{}
	}
	plain := *d
	plain.UpdateRequestIDs, plain.Revision, plain.Generation, plain.LastEdit = nil, 1, 1, job.Edit{}
	plain.CreatedMS = cmp.Or(d.CreatedMS, placeholderMS)
	plain.UpdatedMS, plain.AnchorMS = plain.CreatedMS, plain.CreatedMS
	w.Record.Definition = &plain
	return r.o.Store.WrittenBytes(&w)
}

// countedBytes returns how many bytes of a definition count for the quota; d may be nil.
func (r *Registry) countedBytes(d *job.Definition) int {
	if d == nil {
		return 0
	}
	return r.countWrite(job.Restoration{Record: job.Record{Definition: d}}).Definition
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

// quotaDemand is what a write takes of the quotas.
type quotaDemand struct {
	key job.Key
	quotaAmount
	// revision is how many bytes it takes beyond that if the definition that it replaces becomes a revision. If they do
	// not fit, the write goes without.
	revision int
	// edits: it changes a known job, and the amount is the difference. Otherwise a job that exists is not changed.
	edits bool
	// exists: the job was there when the claim was made, which may have taken nothing for it.
	exists bool
}

// quotaClaim is what one call has added to the counts of the quotas before it writes. If the process dies
// before the unused part is returned, or the reply of the write is lost, the counts are too high until the
// next census.
type quotaClaim struct {
	demands []quotaDemand
	taken   []quotaTaken
	// withheld are the demands whose revision does not fit.
	withheld map[int]bool
	turns    *turnsOfPart // for look-ups
}

// amount is what a demand takes that is stored.
func (claim *quotaClaim) amount(i int) quotaAmount {
	a := claim.demands[i].quotaAmount
	if !claim.withheld[i] {
		a.bytes += claim.demands[i].revision
	}
	return a
}

func (claim *quotaClaim) withholdRevision(i int) {
	if claim.withheld == nil {
		claim.withheld = map[int]bool{}
	}
	claim.withheld[i] = true
}

// quotaTaken is what a claim has taken of one quota for a namespace.
type quotaTaken struct {
	quotaMeasure
	namespace string
	n         int
}

// claimQuota adds what is to be stored to the counts, and returns an error for each write that does not fit. If
// something does not fit, it looks for jobs that exist: to register a job again takes nothing. Defer settle at once: a
// claim holds what it was granted, also if that did not suffice and nothing is written.
func (r *Registry) claimQuota(ctx context.Context, demands []quotaDemand) (claim quotaClaim, faults []error) {
	return r.claimQuotaInTurns(ctx, demands, takeTurnsAside(ctx))
}

// claimQuotaInTurns is claimQuota with the turns of the call.
func (r *Registry) claimQuotaInTurns(ctx context.Context, demands []quotaDemand, turns *turnsOfPart) (claim quotaClaim,
	faults []error) {
	claim.demands, claim.turns, faults = demands, turns, make([]error, len(demands))
	for _, m := range r.activeQuotas() {
		for namespace, places := range groupByNamespace(demands, faults) {
			limit := m.quota.Limit(namespace)
			if limit == 0 {
				continue
			}
			err := r.claimQuotaOf(ctx, &claim, m, namespace, places, faults, limit)
			if err != nil {
				for _, i := range places {
					faults[i] = err
				}
			}
		}
	}
	err := turns.rejoin(ctx)
	for i := range faults {
		faults[i] = cmp.Or(faults[i], err)
	}
	return claim, faults
}

// claimQuotaOf claims one quota for the demands of a namespace.
func (r *Registry) claimQuotaOf(ctx context.Context, claim *quotaClaim, m quotaMeasure, namespace string, places []int,
	faults []error, limit int) (err error) {
	if m.bytes && m.quota.Full(namespace) {
		for _, i := range places {
			claim.withholdRevision(i)
		}
	}
	needs, sum := m.neededAmounts(claim.demands, places)
	revisions := 0
	for _, i := range places {
		revisions += m.neededForRevision(claim, i)
	}
	t := quotaTaken{quotaMeasure: m, namespace: namespace}
	if sum+revisions > 0 {
		t.n, err = m.quota.Reserve(ctx, namespace, sum+revisions, limit)
	}
	claim.taken = append(claim.taken, t)
	if err == nil && t.n < sum {
		err = r.subtractExisting(ctx, claim, t, places, needs)
	}
	if err == nil && t.n < sum+revisions {
		t.shareGranted(claim, places, needs, faults, limit)
	}
	return err
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

// neededForRevision returns what a demand takes beyond that for its revision.
func (m quotaMeasure) neededForRevision(claim *quotaClaim, i int) int {
	d := claim.demands[i]
	if !m.bytes || claim.withheld[i] {
		return 0
	}
	return max(0, d.bytes+d.revision) - max(0, d.bytes)
}

// shareGranted gives what was granted to the first demands that it suffices for, and fails the others. What is left is
// for revisions.
func (t quotaTaken) shareGranted(claim *quotaClaim, places, needs []int, faults []error, limit int) {
	left := t.n
	for k, i := range places {
		if needs[k] > left {
			faults[i] = &job.QuotaError{Namespace: t.namespace, Limit: limit, Bytes: t.bytes}
			continue
		}
		left -= needs[k]
	}
	for _, i := range places {
		need := t.neededForRevision(claim, i)
		if faults[i] != nil || need > left {
			claim.withholdRevision(i)
			continue
		}
		left -= need
	}
}

// subtractExisting sets the needs of jobs that exist to nothing: the write leaves them as they are.
func (r *Registry) subtractExisting(ctx context.Context, claim *quotaClaim, t quotaTaken, places, needs []int) error {
	var sought []job.Key
	var at []int
	for k, i := range places {
		d := &claim.demands[i]
		if !d.edits {
			sought, at = append(sought, d.key), append(at, k)
		}
	}
	if len(sought) > 1 {
		end, err := r.lookups.begin(ctx, t.namespace, claim.turns)
		if err != nil {
			return err
		}
		defer end()
	}
	return r.findExisting(ctx, sought, func(n int) {
		needs[at[n]], claim.demands[places[at[n]]].exists = 0, true
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

// mayBeStored reports whether a write of one job may be stored although it failed. The error of a context proves
// nothing: the write of a call that ended may still be on its way.
func mayBeStored(err error) bool {
	return mayBeStoredInBatch(err) && !errors.Is(err, job.ErrNoMemory) && !errors.Is(err, job.ErrCorrupt)
}

// mayBeStoredInBatch is mayBeStored of a write whose error may be that of another one in the same call of the store.
func mayBeStoredInBatch(err error) bool {
	var invalid *job.InvalidError
	var missing *job.MissingError
	var exists *job.ExistsError
	var busy *job.BusyError
	refused := errors.Is(err, job.ErrNotFound) || errors.Is(err, job.ErrConflict) || errors.As(err, &invalid) ||
		errors.As(err, &missing) || errors.As(err, &exists) || errors.As(err, &busy)
	return !refused
}

// countsAsStored reports whether a change of the ledger was stored. If that is unknown, it errs so that the count may
// be too high until the next census, but not too low.
func countsAsStored(result job.ChangeResult, err error, shrinks bool) bool {
	if err == nil {
		return result.Answer == job.Applied
	}
	return mayBeStored(err) && !shrinks
}

// settle corrects the counts by what was stored, or may have been: it returns what was taken beyond that, and takes
// what was stored beyond the claim. stored is by demand.
func (claim *quotaClaim) settle(ctx context.Context, stored []quotaAmount) {
	ctx = context.WithoutCancel(ctx)
	sums := map[string]quotaAmount{}
	for i, a := range stored {
		sum := sums[claim.demands[i].key.Namespace]
		sums[claim.demands[i].key.Namespace] = quotaAmount{sum.jobs + a.jobs, sum.bytes + a.bytes}
	}
	for _, t := range claim.taken {
		switch spare := t.n - t.amountOf(sums[t.namespace]); {
		case spare > 0:
			t.quota.Return(ctx, t.namespace, spare)
		case spare < 0:
			t.quota.Take(ctx, t.namespace, -spare)
		}
	}
}

// deletedDefinition returns the definition that a deletion found, or the key of the job: then the next census corrects
// the bytes. A definition that was read before may be another one, also if it has the same etag: restores set that.
func deletedDefinition(key job.Key, deletion *job.ChangeResult) *job.Definition {
	if deletion.Record.Definition != nil {
		return deletion.Record.Definition
	}
	return &job.Definition{Key: key}
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

// claimQuotaForEdits claims the bytes by which definitions grow, and those of the revisions that they leave behind.
// Bookkeeping of edits is counted by the next census only: it causes no refusal.
func (r *Registry) claimQuotaForEdits(ctx context.Context, edits []definitionEdit) (claim quotaClaim, faults []error) {
	if !r.limitsBytes() {
		return quotaClaim{}, make([]error, len(edits))
	}
	demands := make([]quotaDemand, len(edits))
	for i, e := range edits {
		w := job.Restoration{Record: job.Record{Definition: e.after}}
		if r.o.Revisions > 0 && !e.after.ReplacesSeal(e.before) {
			w.Replaced = e.before
		}
		demands[i] = r.demandOf(w, e.before)
	}
	return r.claimQuota(ctx, demands)
}

// demandOf returns what a write takes that replaces a definition; nil: that of no job.
func (r *Registry) demandOf(w job.Restoration, before *job.Definition) quotaDemand {
	n := r.countWrite(w)
	d := quotaDemand{key: w.Record.Definition.Key, edits: before != nil, revision: n.Revision}
	d.bytes = n.Definition + n.Rest - r.countedBytes(before)
	if before == nil {
		d.jobs = 1
	}
	return d
}

// settleEdits corrects the counts by the edits that were stored, or may have been.
func (claim *quotaClaim) settleEdits(ctx context.Context, stored func(i int, shrinks bool) bool) {
	amounts := make([]quotaAmount, len(claim.demands))
	for i := range claim.demands {
		a := claim.amount(i)
		if stored(i, a.bytes < 0) {
			amounts[i] = a
		}
	}
	claim.settle(ctx, amounts)
}
