package registry

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
)

// MaxBackupPage bounds a page of Backups: dead letters and runs come with each job.
const MaxBackupPage = 50

// Backups returns up to pageSize jobs (0: MaxBackupPage) with their checkpoints,
// each as it was at one instant. Pages are as those of List. A job whose definition
// cannot be compiled comes without a checkpoint.
func (r *Registry) Backups(ctx context.Context, f job.Filter, pageSize int, token string) (job.BackupPage, error) {
	if err := validateFilter(f, pageSize); err != nil {
		return job.BackupPage{}, err
	}
	if pageSize == 0 || pageSize > MaxBackupPage {
		pageSize = MaxBackupPage
	}
	l, err := r.jobs(f, pageSize, token, "ExportJobs", func(record job.Record) bool { return matches(f, &record) })
	if err != nil {
		return job.BackupPage{}, err
	}
	if err := l.fill(ctx); err != nil {
		return job.BackupPage{}, err
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
			return job.BackupPage{}, err
		}
		snaps, err := r.o.Store.Snapshots(ctx, shard, byShard[shard])
		if err != nil {
			return job.BackupPage{}, err
		}
		for _, snap := range snaps {
			if snap == nil || snap.Record.State.Deleting {
				continue // deleted since it was listed
			}
			if err := ctx.Err(); err != nil {
				return job.BackupPage{}, err
			}
			page.Backups = append(page.Backups, backup(*snap, now))
		}
	}
	return page, nil
}

func backup(snap job.Snapshot, now int64) job.Backup {
	b := job.Backup{Definition: *snap.Record.Definition}
	if c, err := job.Compile(&b.Definition); err == nil {
		if cp, ok := c.Checkpoint(snap, now); ok {
			b.Checkpoint = &cp
		}
	}
	return b
}

// restoreTries bounds how often a job is restored again because it changed
// meanwhile.
const restoreTries = 8

// Restore registers up to MaxBatch jobs with what was known of them, each in one
// step; without a checkpoint a job is registered as a new one. Each has an answer of
// its own. A call may be repeated.
func (r *Registry) Restore(ctx context.Context, backups []job.Backup, existing job.Existing) []job.RestoreAnswer {
	answers := make([]job.RestoreAnswer, len(backups))
	if len(backups) > MaxBatch {
		for i := range answers {
			answers[i].Err = job.Invalid("jobs", "has %d entries, at most %d are allowed", len(backups), MaxBatch)
		}
		return answers
	}
	reserved, faults := r.reserve(ctx, r.restored(backups, existing))
	byShard, limits := map[int][]*restoring{}, forCall(r.o.Limits)
	items := make([]*restoring, len(backups)) // nil: nothing is tried
	for i, b := range backups {
		if answers[i].Err = faults[i]; faults[i] != nil {
			continue
		}
		if v := job.ValidateKey(b.Definition.Key); len(v) > 0 {
			answers[i].Err = &job.InvalidError{Violations: v}
			continue
		}
		shard := r.o.Store.ShardOf(b.Definition.Key)
		items[i] = &restoring{backup: b, answer: &answers[i], limits: limits}
		byShard[shard] = append(byShard[shard], items[i])
	}
	for shard, items := range byShard {
		for range restoreTries {
			if items = r.restore(ctx, shard, items, existing); len(items) == 0 {
				break
			}
		}
		for _, item := range items {
			item.answer.Err = job.ErrConflict
			if item.present == nil {
				item.answer.Err = job.ErrCorrupt // or it comes and goes
			}
		}
	}
	stored := make([]amount, len(backups))
	for i, item := range items {
		if item != nil {
			stored[i] = item.stored(r, reserved.demands[i].amount)
		}
	}
	reserved.settle(ctx, stored)
	return answers
}

// restored are what backups take at most.
func (r *Registry) restored(backups []job.Backup, existing job.Existing) []demand {
	demands := make([]demand, len(backups))
	for i, b := range backups {
		d := b.Definition
		if b.Checkpoint != nil {
			d.CreateRequestID, d.CreatedMS = b.Checkpoint.CreateRequestID, b.Checkpoint.CreatedMS
		}
		demands[i] = demand{key: d.Key, amount: amount{1, r.sizeSealed(d)}, replaces: existing == job.ExistingReplace}
	}
	return demands
}

// stored is what a backup takes now, or all that was demanded for it if that is not known.
func (i *restoring) stored(r *Registry, demanded amount) amount {
	switch a := i.answer; {
	case a.Err != nil && !certain(a.Err):
		return demanded
	case a.Err != nil:
	case a.Outcome == job.RestoreCreated:
		return amount{1, r.sizeOf(i.plan.Record.Definition)}
	case a.Outcome == job.RestoreReplaced:
		return amount{0, r.sizeOf(i.plan.Record.Definition) - r.sizeOf(i.present.Definition)}
	}
	return amount{}
}

// certain tells of an error after which nothing was created.
func certain(err error) bool {
	var invalid *job.InvalidError
	var exists *job.ExistsError
	var busy *job.BusyError
	return errors.As(err, &invalid) || errors.As(err, &exists) || errors.As(err, &busy)
}

// restoring is a backup on its way.
type restoring struct {
	backup  job.Backup
	present *job.Record // what is there and is to be replaced
	plan    job.Restoration
	answer  *job.RestoreAnswer
	limits  job.Limits // with the work of the call
}

// restore tries jobs of one shard once and returns those to be tried again.
func (r *Registry) restore(ctx context.Context, shard int, items []*restoring, existing job.Existing) (again []*restoring) {
	fail := func(items []*restoring, err error) {
		for _, item := range items {
			item.answer.Err = err
		}
	}
	now, err := r.o.Store.Now(ctx, shard)
	if err != nil {
		fail(items, err)
		return nil
	}
	var good []*restoring
	var plans []job.Restoration
	for _, item := range items {
		if err := ctx.Err(); err != nil { // nobody waits for the rest
			item.answer.Err = err
			continue
		}
		if done := item.prepare(r, now); !done {
			good, plans = append(good, item), append(plans, item.plan)
		}
	}
	if len(good) == 0 {
		return nil
	}
	r.beginWrite(ctx) // the call waits for it
	reply := r.o.Store.Restore(ctx, shard, plans)
	if reply.Err != nil && !errors.Is(reply.Err, job.ErrDurability) {
		fail(good, reply.Err)
		return nil
	}
	r.nudge(shard, reply.Earlier, reply.Holder)
	for i, item := range good {
		if item.judge(r, reply.Results[i], existing) {
			again = append(again, item)
		} else if item.answer.Err == nil {
			r.observe(item.notices(now))
		}
	}
	if reply.Err != nil {
		// What was written is there; only the caller has to ask again.
		fail(good, reply.Err)
		return nil
	}
	return again
}

// prepare plans the write; done when there is nothing to write.
func (i *restoring) prepare(r *Registry, now int64) (done bool) {
	payload, err := r.open(&i.backup.Definition) // a backup is no better than what it was read from
	if err != nil {
		i.answer.Err = job.Invalid("job.payload", "cannot be restored: %v; a sealed one belongs to its namespace, id, queue, handler, timeout, labels and max_attempts", err)
		return true
	}
	limits := i.limits
	if v := job.Validate(&i.backup.Definition, limits); len(v) == 0 { // what is too large is refused below
		i.seal(r, payload)
	}
	d, present := i.backup.Definition, i.present
	if i.backup.Checkpoint == nil {
		c := creation{request: &job.CreateRequest{Definition: d}, asIs: true}
		if i.answer.Err = c.prepare(r, now, limits, nil, new(job.Decision)); i.answer.Err != nil {
			return true
		}
		i.plan = job.Restoration{Record: c.record}
		if present == nil {
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
	return i.answer.Err != nil
}

// seal seals the payload of the backup, or leaves it as it is stored where that is the same.
func (i *restoring) seal(r *Registry, payload []byte) {
	d := &i.backup.Definition
	if i.present != nil && d.SameBound(i.present.Definition) {
		r.align(d, i.present.Definition)
	}
	if s := r.o.Sealer; d.PayloadKey == "" || s != nil && d.SealVersion() < s.Version() {
		r.seal(d, payload)
	}
}

// judge tells what became of the job, and whether it is to be tried again.
func (i *restoring) judge(r *Registry, result job.CreateResult, existing job.Existing) (again bool) {
	key, there := i.backup.Definition.Key, result.Existing
	switch {
	case result.Code == job.Created:
		if i.answer.Outcome = job.RestoreCreated; i.present != nil {
			i.answer.Outcome = job.RestoreReplaced
		}
		return false
	case result.Code == job.Tombstone, there != nil && there.State.Deleting:
		i.answer.Err = &job.BusyError{Key: key}
		return false
	case there == nil:
		i.present = nil
		return true
	}
	same := r.sameAs(&i.backup.Definition, there.Definition)
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

// notices are what there is to tell of a job that was written.
func (i *restoring) notices(now int64) []job.Notice {
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
