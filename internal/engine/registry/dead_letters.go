package registry

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Bounds of one call that changes many jobs.
const (
	bulkPage = 500
	// defaultBulkTime is the default of Options.BulkTime.
	defaultBulkTime = 500 * time.Millisecond
)

// ListDeadLetters lists the dead letters of a namespace, including those of one-time jobs. Pages are as those of List.
func (r *Registry) ListDeadLetters(ctx context.Context, f job.Filter,
	pageSize int, token string) (job.DeadLetterPage, error) {
	if err := validateFilter(f, pageSize); err != nil {
		return job.DeadLetterPage{}, err
	}
	if pageSize == 0 {
		pageSize = DefaultPageSize
	}
	l, err := r.listLetters(f, pageSize, token, "ListDeadLetters")
	if err != nil {
		return job.DeadLetterPage{}, err
	}
	if err := l.fillPage(ctx); err != nil {
		return job.DeadLetterPage{}, err
	}
	return job.DeadLetterPage{DeadLetters: l.items, Next: l.next}, nil
}

// listLetters returns the builder of a page of dead letters.
func (r *Registry) listLetters(f job.Filter, size int, token, call string) (*pageBuilder[job.DeadLetter], error) {
	at, err := parseToken(token, call, f)
	if err != nil {
		return nil, err
	}
	return &pageBuilder[job.DeadLetter]{
		source: func(ctx context.Context, cursor string, n int) ([]job.DeadLetter, string, int, error) {
			if r.walksVisible(&f, cursor) {
				letters, next, bytes, ok, err := r.lettersVisible(ctx, f, cursor, n)
				if ok || err != nil {
					return r.withoutHiddenJobs(ctx, f, letters, next, bytes, err)
				}
			}
			letters, next, bytes, err := r.o.Store.ListDeadLetters(ctx, f.Namespace, cursor, n)
			return r.withoutHiddenJobs(ctx, f, letters, next, bytes, err)
		},
		id: func(l job.DeadLetter) string { return string(l.Record) },
		want: func(l job.DeadLetter) bool {
			key := l.Record.Key()
			return (f.Queue == "" || l.Queue == f.Queue) &&
				strings.HasPrefix(key.ID, f.IDPrefix) && hasLabels(l.Labels, f.Labels) &&
				(f.Condition == nil || f.Condition.Matches(l.Stored, f.NowMS))
		},
		weight:  func(l job.DeadLetter) int { return l.ResponseSize() },
		size:    size,
		step:    filterChunk,
		at:      at,
		started: time.Now(), patience: r.o.ScanTime,
	}, nil
}

// withoutHiddenJobs leaves out the dead letters of a page that the caller's roles do not cover, by their own queue or by
// that of their job.
func (r *Registry) withoutHiddenJobs(ctx context.Context, f job.Filter, letters []job.DeadLetter, next string, bytes int,
	err error) ([]job.DeadLetter, string, int, error) {
	if err != nil || f.Covers == nil {
		return letters, next, bytes, err
	}
	letters = slices.DeleteFunc(letters, func(l job.DeadLetter) bool { return !f.CoversAll(l.Queue) })
	keys := make([]job.Key, len(letters))
	for i, l := range letters {
		keys[i] = l.Record.Key()
	}
	hidden, err := r.hiddenJobs(ctx, f, keys)
	if err != nil {
		return nil, "", 0, err
	}
	return slices.DeleteFunc(letters, func(l job.DeadLetter) bool { return hidden[l.Record.Key()] }), next, bytes, nil
}

// hiddenJobs returns the jobs that are gone, or in queues that the filter does not cover. A dead letter has a copy of the
// definition from when its run died, and does not show where its job is now. Definitions may be large: the states of jobs
// have their queues, except while a run is live.
func (r *Registry) hiddenJobs(ctx context.Context, f job.Filter, keys []job.Key) (hidden map[job.Key]bool, err error) {
	hidden = map[job.Key]bool{}
	keys = slices.Clone(keys)
	slices.SortFunc(keys, func(a, b job.Key) int { return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ID, b.ID)) })
	keys = slices.Compact(keys)
	entries := make([]job.IndexEntry, len(keys))
	for i, key := range keys {
		entries[i] = job.IndexEntry{Shard: r.o.Store.ShardOf(key), Record: key.Record()}
	}
	states, err := r.o.Store.ReadStates(ctx, entries)
	if err != nil {
		return nil, err
	}
	var live []job.Key // their lanes may be those of before a move
	for i, state := range states {
		hidden[keys[i]] = state == nil || !f.CoversAll(state.Lane.Queue)
		if state != nil && state.Live() && !hidden[keys[i]] {
			live = append(live, keys[i])
		}
	}
	err = r.readJobs(ctx, live, func(i int, record *job.Record) {
		hidden[live[i]] = record == nil || !f.CoversAll(record.Definition.Queue)
	})
	return hidden, err
}

// RedriveDeadLetters runs dead letters again: those that are named, or a page of those that the filter selects. The
// recovery budget of their queues paces them. Those that do not exist any more, or have no room, count as
// refused.
func (r *Registry) RedriveDeadLetters(ctx context.Context, q job.RedriveRequest) (job.Bulk, error) {
	if err := validateFilter(q.Filter, 0); err != nil {
		return job.Bulk{}, err
	}
	if len(q.Records) > 0 {
		return r.redriveNamed(ctx, q)
	}
	l, err := r.listLetters(q.Filter, bulkPage, q.Token, "RedriveDeadLetters")
	if err != nil {
		return job.Bulk{}, err
	}
	if err := l.fillPage(ctx); err != nil {
		return job.Bulk{}, err
	}
	if q.DryRun {
		return job.Bulk{Done: len(l.items), Next: l.next}, nil
	}
	changes := make([]job.Change, len(l.items))
	for i, letter := range l.items {
		changes[i] = job.Change{Record: letter.Record, Input: job.Redrive{IgnoreExclusions: q.IgnoreExclusions}}
	}
	return r.commitInParts(ctx, changes, l.tokenAfter)
}

func (r *Registry) redriveNamed(ctx context.Context, q job.RedriveRequest) (job.Bulk, error) {
	if f := q.Filter; f.Queue != "" || f.IDPrefix != "" || len(f.Labels) > 0 || q.Token != "" {
		return job.Bulk{}, job.Invalid("names", "must stand without filters and page_token")
	}
	q.Records = withoutRepeats(q.Records)
	records := q.Records
	if q.DryRun || q.Filter.Covers != nil {
		dead, err := r.findDead(ctx, q)
		if err != nil {
			return job.Bulk{}, err
		}
		if q.DryRun {
			return job.Bulk{Done: len(dead), Refused: len(records) - len(dead)}, nil
		}
		records = dead
	}
	changes := make([]job.Change, len(records))
	for i, record := range records {
		changes[i] = job.Change{Record: record, Input: job.Redrive{IgnoreExclusions: q.IgnoreExclusions}}
	}
	answer, err := r.commitInParts(ctx, changes, nil)
	if err == nil {
		answer.Refused += len(q.Records) - len(records)
	}
	return answer, err
}

// withoutRepeats returns each record once.
func withoutRepeats(records []job.RecordID) []job.RecordID {
	seen := make(map[job.RecordID]bool, len(records))
	return slices.DeleteFunc(slices.Clone(records), func(record job.RecordID) bool {
		repeated := seen[record]
		seen[record] = true
		return repeated
	})
}

// findDead returns the records that are dead runs and that the request covers.
func (r *Registry) findDead(ctx context.Context, q job.RedriveRequest) (dead []job.RecordID, err error) {
	byShard := map[int][]job.RecordID{}
	for _, record := range q.Records {
		key := record.Key()
		shard := r.o.Store.ShardOf(key)
		byShard[shard] = append(byShard[shard], record)
	}
	for shard, ids := range byShard {
		err := readInParts(ids, func(part []job.RecordID) ([]*job.Record, error) {
			return r.o.Store.GetRecords(ctx, shard, part)
		}, func(i int, record *job.Record) {
			if record != nil && record.State.Region == job.RegionDead && q.Filter.CoversAll(record.State.Lane.Queue) {
				dead = append(dead, ids[i])
			}
		})
		if err != nil {
			return nil, err
		}
	}
	if q.Filter.Covers == nil {
		return dead, nil
	}
	keys := make([]job.Key, len(dead))
	for i, record := range dead {
		keys[i] = record.Key()
	}
	hidden, err := r.hiddenJobs(ctx, q.Filter, keys)
	return slices.DeleteFunc(dead, func(record job.RecordID) bool { return hidden[record.Key()] }), err
}

// commitInParts submits many changes to the ledger, in parts, until all are done or BulkTime is over: some
// decisions take far longer than others. Next is then where to continue; without tokens the error is
// job.ErrTooMuchWork. An error of the store ends the call; what was changed before is noted for the audit trail. A
// repeated call does not change again what was changed before.
func (r *Registry) commitInParts(ctx context.Context, changes []job.Change,
	tokenAfter func(n int) string) (answer job.Bulk, err error) {
	scope := r.reachableQueues(ctx)
	for i := range changes {
		changes[i].Covers = scope
	}
	began, done := time.Now(), 0
	for size := newPartSize(); done < len(changes); size.grow() {
		part := changes[done:min(done+size.next, len(changes))]
		results := r.commitChanges(ctx, part...)
		size.noteResults(results)
		if err := addResults(&answer, results); err != nil {
			return job.Bulk{}, err
		}
		done += len(part)
		if time.Since(began) >= r.o.BulkTime && done < len(changes) {
			break
		}
	}
	switch {
	case tokenAfter != nil:
		answer.Next = tokenAfter(done)
	case done < len(changes):
		return job.Bulk{}, job.ErrTooMuchWork
	}
	return answer, nil
}

// addResults adds the results of some changes to the counts. Of several errors it returns one after which a change may
// be stored, if there is one.
func addResults(answer *job.Bulk, results []job.ChangeResult) (err error) {
	for _, result := range results {
		switch {
		case errors.Is(result.Err, job.ErrNotFound), errors.Is(result.Err, job.ErrCorrupt), errors.Is(result.Err,
			job.ErrConflict):
			answer.Refused++ // the others have been changed, and are counted
		case result.Err != nil:
			if err == nil || mayBeStored(result.Err) && !mayBeStored(err) {
				err = result.Err
			}
		case result.Answer == job.Applied:
			answer.Done++
		default:
			answer.Refused++
		}
	}
	return err
}

// PauseAll pauses a page of the jobs that the filter selects, with a note of at most job.MaxNote bytes. Jobs
// that are paused already keep their notes.
func (r *Registry) PauseAll(ctx context.Context, f job.Filter, note, token string) (job.Bulk, error) {
	if err := validateNote(note); err != nil {
		return job.Bulk{}, err
	}
	return r.changeSelected(ctx, f, token, "PauseJobs", job.Pause{Note: note},
		func(s *job.State) bool { return !s.Paused })
}

// ResumeAll ends the pause of a page of the jobs that the filter selects; with a note, of those that were
// paused with it. The recovery budget of their queues paces the runs that become due.
func (r *Registry) ResumeAll(ctx context.Context, f job.Filter, note string, catchUp bool, token string) (job.Bulk,
	error) {
	if err := validateNote(note); err != nil {
		return job.Bulk{}, err
	}
	return r.changeSelected(ctx, f, token, "ResumeJobs", job.Resume{CatchUp: catchUp}, func(s *job.State) bool {
		return s.Paused && (note == "" || s.PauseNote == note)
	})
}

// changeSelected submits an event to a page of the jobs that the filter selects and whose state is wanted.
func (r *Registry) changeSelected(ctx context.Context, f job.Filter, token, method string, ev job.Input,
	wanted func(*job.State) bool) (job.Bulk, error) {
	if err := validateFilter(f, 0); err != nil {
		return job.Bulk{}, err
	}
	l, err := r.listJobs(f, bulkPage, token, method, func(record job.Record) bool {
		return wanted(&record.State) && matchesFilter(f, &record)
	})
	if err != nil {
		return job.Bulk{}, err
	}
	// Most jobs may not be wanted, and no payloads are sent.
	l.step, l.weight = filterChunk, func(job.Record) int { return 0 }
	if err := l.fillPage(ctx); err != nil {
		return job.Bulk{}, err
	}
	changes := make([]job.Change, len(l.items))
	for i := range l.items {
		changes[i] = job.Change{Record: l.items[i].Definition.Record(), Input: ev, Known: &l.items[i]}
	}
	return r.commitInParts(ctx, changes, l.tokenAfter)
}
