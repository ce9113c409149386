package registry

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// MaxBackupPage bounds a page of Backups: dead letters and runs come with each job.
const MaxBackupPage = 50

// ExportJobs returns up to pageSize jobs (0: MaxBackupPage) with their checkpoints, each job read at one instant.
// Pages are as those of List. A job whose definition cannot be compiled has no checkpoint.
func (r *Registry) ExportJobs(ctx context.Context, f job.Filter, pageSize int, token string) (job.BackupPage, error) {
	if err := validateFilter(f, pageSize); err != nil {
		return job.BackupPage{}, err
	}
	if pageSize == 0 || pageSize > MaxBackupPage {
		pageSize = MaxBackupPage
	}
	for ; ; pageSize = pageSize / 2 {
		page, revisionBytes, err := r.exportPage(ctx, f, pageSize, token)
		isSmall := revisionBytes <= exportedRevisionBytes && sizeOfRunPayloads(page.Backups) <= exportedRunPayloadBytes
		if err != nil || isSmall || pageSize == 1 {
			return page, err
		}
	}
}

// exportPage is ExportJobs with a page of so many jobs. It returns about how many bytes their revisions have; above
// exportedRevisionBytes some are missing.
func (r *Registry) exportPage(ctx context.Context, f job.Filter, pageSize int, token string) (_ job.BackupPage,
	revisionBytes int, _ error) {
	l, err := r.listJobs(f, pageSize, token, "ExportJobs",
		func(record job.Record) bool { return matchesFilter(f, &record) })
	if err != nil {
		return job.BackupPage{}, 0, err
	}
	if err := l.fillPage(ctx); err != nil {
		return job.BackupPage{}, 0, err
	}
	byShard := map[int][]job.Record{}
	for _, record := range l.items {
		shard := r.o.Store.ShardOf(record.Definition.Key)
		byShard[shard] = append(byShard[shard], record)
	}
	page := job.BackupPage{Next: l.next}
	for _, shard := range slices.Sorted(maps.Keys(byShard)) {
		now, err := r.o.Store.Now(ctx, shard)
		if err != nil {
			return job.BackupPage{}, 0, err
		}
		snaps, err := r.o.Store.Snapshots(ctx, shard, byShard[shard])
		if err != nil {
			return job.BackupPage{}, 0, err
		}
		first := len(page.Backups)
		for _, snap := range snaps {
			if snap == nil || snap.Record.State.Deleting {
				continue // deleted since it was listed
			}
			if err := ctx.Err(); err != nil {
				return job.BackupPage{}, 0, err
			}
			page.Backups = append(page.Backups, r.buildBackup(*snap, now))
		}
		bytes, err := r.addRevisions(ctx, shard, page.Backups[first:])
		if err != nil {
			return job.BackupPage{}, 0, err
		}
		revisionBytes += bytes
	}
	return page, revisionBytes, nil
}

// exportedRunPayloadBytes bounds the payloads that runs have of their own in a page of more than one job.
const exportedRunPayloadBytes = 4 << 20

func (r *Registry) buildBackup(snap job.Snapshot, now unixtime.Milli) job.Backup {
	b := job.Backup{Definition: *snap.Record.Definition}
	if c, err := job.Compile(&b.Definition); err == nil {
		if cp, ok := c.Checkpoint(snap, now); ok {
			b.Checkpoint = &cp
		}
	}
	r.warnOfBackup(&b, &snap)
	return b
}

// restoreTries is the maximum number of attempts to restore a job that changes meanwhile.
const restoreTries = 8

// Restore registers up to MaxBatch jobs from backups, each in one step; a job without a checkpoint is
// registered as a new one. Each has its own answer. A call may be repeated.
func (r *Registry) Restore(ctx context.Context, backups []job.Backup, existing job.Existing) []job.RestoreAnswer {
	answers := make([]job.RestoreAnswer, len(backups))
	if len(backups) > MaxBatch {
		for i := range answers {
			answers[i].Err = job.Invalid("jobs", "has %d entries, at most %d are allowed", len(backups), MaxBatch)
		}
		return answers
	}
	turns := takeTurnsAside(ctx)
	defer turns.finish()
	byShard, limits := map[int][]*restoreItem{}, r.limitsForSearch()
	for i, b := range backups {
		if v := job.ValidateKey(b.Definition.Key); len(v) > 0 {
			answers[i].Err = &job.InvalidError{Violations: v}
			continue
		}
		shard := r.o.Store.ShardOf(b.Definition.Key)
		byShard[shard] = append(byShard[shard], &restoreItem{backup: b, answer: &answers[i], limits: limits,
			by: r.callerEdit(ctx), turns: turns})
	}
	size := newPartSize() // of all shards
	for shard, items := range byShard {
		for len(items) > 0 {
			n := min(size.next, len(items))
			r.restorePart(ctx, shard, items[:n], existing, size)
			items = items[n:]
		}
	}
	return answers
}

// restorePart restores jobs of one shard, and then releases the stored jobs that it has read.
func (r *Registry) restorePart(ctx context.Context, shard int, items []*restoreItem, existing job.Existing,
	size *partSize) {
	left := items
	for range restoreTries {
		left = r.restoreShard(ctx, shard, left, existing)
		if len(left) == 0 {
			break
		}
	}
	for _, item := range left {
		item.answer.Err = job.ErrConflict
		if item.present == nil {
			item.answer.Err = job.ErrCorrupt // or others keep creating and deleting it
		}
	}
	for _, item := range items {
		size.note(item.found)
		item.present, item.found, item.plan = nil, nil, job.Restoration{}
	}
	size.grow()
}

// claimQuotaForPlans claims what planned writes store, and returns those that fit. A write goes without its revision if
// that does not fit. Call settle when the writes have their results.
func (r *Registry) claimQuotaForPlans(ctx context.Context, items []*restoreItem) (fit []*restoreItem, settle func()) {
	if len(r.activeQuotas()) == 0 || len(items) == 0 {
		return items, func() {}
	}
	demands := make([]quotaDemand, len(items))
	for i, item := range items {
		var before *job.Definition
		if item.present != nil {
			before = item.present.Definition
		}
		demands[i] = r.demandOf(item.plan, before)
	}
	claim, faults := r.claimQuotaInTurns(ctx, demands, items[0].turns)
	for i, item := range items {
		item.stored, item.answer.Err = false, faults[i]
		if faults[i] != nil {
			continue
		}
		if claim.withheld[i] {
			item.plan.Replaced = nil
		}
		fit = append(fit, item)
	}
	return fit, func() {
		claim.settleEdits(ctx, func(i int, shrinks bool) bool {
			err := items[i].answer.Err
			isUnknown := faults[i] == nil && err != nil && mayBeStoredInBatch(err)
			return items[i].stored || isUnknown && !shrinks && !claim.demands[i].exists
		})
	}
}

// restoreItem is the state of one backup of a Restore call.
type restoreItem struct {
	backup  job.Backup
	present *job.Record     // the stored job, which is to be replaced
	found   *job.Definition // of the stored job that the last write found, nil if it found none
	plan    job.Restoration
	answer  *job.RestoreAnswer
	limits  job.Limits // with the work of the call
	by      job.Edit
	stored  bool         // by the last write, certainly
	turns   *turnsOfPart // of the call for look-ups
	// isPrepared: the runs and dead letters of the backup are ready to be stored; warnings are about them.
	isPrepared bool
	warnings   []string
}

// restoreShard tries to restore jobs of one shard once, and returns those to be tried again.
func (r *Registry) restoreShard(ctx context.Context, shard int, items []*restoreItem,
	existing job.Existing) (again []*restoreItem) {
	fail := func(items []*restoreItem, err error) {
		for _, item := range items {
			item.answer.Err = err
		}
	}
	now, err := r.o.Store.Now(ctx, shard)
	if err != nil {
		fail(items, err)
		return nil
	}
	var planned []*restoreItem
	for _, item := range items {
		if err := ctx.Err(); err != nil { // the caller has gone
			item.answer.Err = err
			continue
		}
		if done := item.planWrite(r, now); !done {
			planned = append(planned, item)
		}
	}
	good, settle := r.claimQuotaForPlans(ctx, planned)
	defer settle()
	if len(good) == 0 {
		return nil
	}
	plans := make([]job.Restoration, len(good))
	for i, item := range good {
		plans[i] = item.plan
	}
	r.beginWrite(ctx) // the call waits for the reply
	reply := r.o.Store.Restore(ctx, shard, plans)
	if reply.Err != nil && !errors.Is(reply.Err, job.ErrDurability) {
		fail(good, reply.Err)
		return nil
	}
	r.nudgeHolder(shard, reply.Earlier, reply.Holder)
	for i, item := range good {
		if item.applyResult(r, reply.Results[i], existing) {
			again = append(again, item)
		} else if item.answer.Err == nil {
			r.observeNotices(item.buildNotices(now))
		}
	}
	if reply.Err != nil {
		// What was written is there; only the caller has to ask again.
		fail(good, reply.Err)
		return nil
	}
	return again
}

// planWrite plans the write; done: there is nothing to write.
func (i *restoreItem) planWrite(r *Registry, now unixtime.Milli) (done bool) {
	payload, err := r.openPayload(&i.backup.Definition) // a backup grants no access to a payload that may not be delivered
	if err != nil {
		i.answer.Err = job.Invalid("job.payload",
			"cannot be restored: %v; a sealed one belongs to its namespace, id, queue, handler, timeout, "+
				"labels and max_attempts", err)
		return true
	}
	limits := i.limits
	if len(payload) <= limits.MaxPayload { // what is too large is refused below
		i.sealBackup(r, payload)
	}
	i.prepareRuns(r)
	d, present := i.backup.Definition, i.present
	if i.backup.Checkpoint == nil {
		c := createItem{request: &job.CreateRequest{Definition: d}, skipsPayloadCheck: true}
		i.answer.Err = c.buildRecord(r, now, limits, nil, new(job.Decision))
		if i.answer.Err != nil {
			return true
		}
		i.plan = job.Restoration{Record: c.record}
		if present == nil {
			i.planRevisions(r)
			return false
		}
		// What replaces a job goes the way of a checkpoint.
		i.backup.Checkpoint = &job.Checkpoint{State: c.record.State, ExpireMS: c.record.IndexMS}
	}
	i.plan, i.answer.Err = job.Restore(d, *i.backup.Checkpoint, present, now, limits)
	if i.answer.Err == nil && i.plan.Unchanged {
		i.answer.Outcome = job.RestoreUnchanged
		return true
	}
	if i.answer.Err == nil {
		i.planRevisions(r)
	}
	return i.answer.Err != nil
}

// prepareRuns prepares the runs and dead letters of the backup to be stored, once.
func (i *restoreItem) prepareRuns(r *Registry) {
	if i.isPrepared {
		return
	}
	i.isPrepared = true
	i.warnings = append(i.backup.RemoveUnlocatedDeadLetters(), r.sealBackupRuns(&i.backup)...)
}

// sealBackup seals the payload of the backup, or keeps the stored one if that is the same.
func (i *restoreItem) sealBackup(r *Registry, payload []byte) {
	d := &i.backup.Definition
	if i.present != nil && d.EqualBoundData(i.present.Definition) {
		r.reuseStoredPayload(d, i.present.Definition)
	}
	if s := r.o.Sealer; d.PayloadKey == "" || s != nil && d.SealVersion() < s.Version() {
		r.sealPayload(d, payload)
	}
}

// applyResult sets the answer of the job, and reports whether it is to be tried again.
func (i *restoreItem) applyResult(r *Registry, result job.CreateResult, existing job.Existing) (again bool) {
	key, there := i.backup.Definition.Key, result.Existing
	if there != nil {
		i.found = there.Definition
	}
	switch {
	case result.Code == job.Created:
		i.stored, i.answer.Outcome, i.answer.Warnings = true, job.RestoreCreated, i.warnings
		if i.present != nil {
			i.answer.Outcome = job.RestoreReplaced
		}
		return false
	case result.Code == job.Tombstone, there != nil && there.State.Deleting:
		i.answer.Err = &job.BusyError{Key: key, Renaming: there != nil && there.State.Rename != nil}
		return false
	case there == nil:
		i.present = nil
		return true
	}
	same := r.matchesDefinition(&i.backup.Definition, there.Definition)
	switch {
	case existing == job.ExistingReplace && !(same && i.backup.Checkpoint == nil):
		i.present = there
		return true
	case same:
		i.answer.Outcome = job.RestoreUnchanged
	case existing == job.ExistingSkip:
		i.answer.Outcome = job.RestoreSkipped
	default:
		i.answer.Err = &job.ExistsError{Key: key, Reason: "it has another definition"}
	}
	return false
}

// buildNotices returns the notices of a job that was written.
func (i *restoreItem) buildNotices(now unixtime.Milli) []job.Notice {
	kind := job.JobCreated
	switch i.answer.Outcome {
	case job.RestoreReplaced:
		kind = job.JobUpdated
	case job.RestoreUnchanged, job.RestoreSkipped:
		return nil
	}
	record := &i.plan.Record
	return []job.Notice{{
		Kind: kind, Key: record.Definition.Key, Queue: record.State.Lane.Queue, AtMS: now,
		DueMS: record.State.Due, Failures: record.State.Failures,
	}}
}
