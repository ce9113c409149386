package registry

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// Bounds of what one call reads: jobs in one go, and bytes of payloads in all, so that
// the answer is a message of common size.
const (
	readAtOnce = 32
	maxRead    = 6 << 20
)

// PlanWishes tells what Apply would do about up to MaxBatch wishes, and everything
// that is wrong with them. It changes nothing. Two wishes for one job are refused.
func (r *Registry) PlanWishes(ctx context.Context, wishes []job.Wish, force bool) []job.WishAnswer {
	w := r.survey(ctx, wishes, force)
	for i := range w.answers {
		switch a := &w.answers[i]; {
		case wishes[i].Delete:
			a.Err = job.Invalid("delete", "is for ApplyJobs only")
		case a.Err == nil && a.Action == job.WishCreate && w.passed(i):
			a.Action = job.WishPassed
		}
	}
	return w.answers
}

// wishing is wishes on their way.
type wishing struct {
	r       *Registry
	wishes  []job.Wish
	answers []job.WishAnswer
	wished  []*job.Definition // complete, as they would be stored
	pinned  []bool            // it changes where values come from that stay the same
	now     int64
	limits  job.Limits // with the work of the call
}

// survey compares wishes with what there is.
func (r *Registry) survey(ctx context.Context, wishes []job.Wish, force bool) *wishing {
	w := &wishing{r: r, wishes: wishes, answers: make([]job.WishAnswer, len(wishes)), wished: make([]*job.Definition, len(wishes)), pinned: make([]bool, len(wishes)), limits: forCall(r.o.Limits)}
	if len(wishes) > MaxBatch {
		return w.fail(job.Invalid("wishes", "has %d entries, at most %d are allowed", len(wishes), MaxBatch))
	}
	present, err := w.read(ctx)
	if err != nil {
		return w.fail(err)
	}
	for i := range wishes {
		a := &w.answers[i]
		if a.Err != nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return w.fail(err) // nobody waits for the rest
		}
		if a.Err = w.find(i, present[wishes[i].Definition.Key]); a.Err != nil {
			continue
		}
		if a.Before != nil && a.Before.State.Deleting {
			a.Before, a.Err = nil, &job.BusyError{Key: wishes[i].Definition.Key}
			if wishes[i].Delete {
				a.Action, a.Err = job.WishDelete, nil
			}
			continue
		}
		if wishes[i].Delete {
			a.Action = job.WishDelete
			continue
		}
		a.Err = w.compare(i, force)
	}
	return w
}

// find notes the job that a wish is about, nil if there is none, unless the wish may not
// touch it.
func (w *wishing) find(i int, present *job.Record) error {
	if present == nil {
		return w.wishes[i].Allowed(nil)
	}
	if err := w.wishes[i].Allowed(present.Definition); err != nil {
		return err
	}
	w.answers[i].Before = present
	return nil
}

func (w *wishing) fail(err error) *wishing {
	for i := range w.answers {
		if w.answers[i].Err == nil {
			w.answers[i].Err = err
		}
	}
	return w
}

// read fetches the jobs that there are, and the time. Shards have one Redis's time
// each: one of them is near enough to check a definition, which is checked again
// when it is stored.
func (w *wishing) read(ctx context.Context) (map[job.Key]*job.Record, error) {
	present := map[job.Key]*job.Record{}
	var keys []job.Key
	for i := range w.wishes {
		key := w.wishes[i].Definition.Key
		if v := job.ValidateKey(key); len(v) > 0 {
			w.answers[i].Err = faults(&w.wishes[i], v)
			continue
		}
		if _, twice := present[key]; twice {
			w.answers[i].Err = job.Invalid("job_id", "%q is wished for twice", key.ID)
			continue
		}
		present[key] = nil
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return present, nil
	}
	var err error
	if w.now, err = w.r.o.Store.Now(ctx, w.r.o.Store.ShardOf(keys[0])); err != nil {
		return nil, err
	}
	size := 0
	for part := range slices.Chunk(keys, readAtOnce) {
		records, err := w.r.o.Store.Get(ctx, part)
		if err != nil {
			return nil, err
		}
		for i, record := range records {
			if present[part[i]] = record; record != nil {
				size += len(record.Definition.Payload)
			}
		}
		if size > maxRead && len(keys) > 1 {
			return nil, job.ErrTooLarge
		}
	}
	return present, nil
}

// compare completes the definition of a wish and decides what becomes of it.
func (w *wishing) compare(i int, force bool) error {
	wish, a := &w.wishes[i], &w.answers[i]
	if a.Before == nil {
		wish.Definition.TakeAsOwn(wish.Doubtful)
	}
	d := wish.Definition
	if a.Before == nil {
		d.Generation, d.Revision = 1, 1
		d.AnchorMS, d.CreatedMS, d.UpdatedMS = w.now, w.now, w.now
		if wish.AsRead {
			return job.Invalid("job.payload_sealed", "there is no such job whose payload it could keep; give the payload itself")
		}
	} else {
		present := a.Before.Definition
		d = keepBookkeeping(d, present)
		if wish.Refresh {
			w.pinned[i] = d.PolicySources() != present.PolicySources()
		} else {
			w.pinned[i] = d.KeepSources(present, wish.Doubtful)
		}
		if wish.AsRead {
			d.Payload, d.PayloadKey = present.Payload, present.PayloadKey
		} else {
			w.r.align(&d, present)
		}
	}
	var stored *job.Definition
	if a.Before != nil {
		stored = a.Before.Definition
	}
	if v := append(job.Validate(&d, w.limits), w.r.payloadFaults(&d, stored, w.limits)...); len(v) > 0 || wish.Err != nil {
		return faults(wish, v)
	}
	if _, err := job.Compile(&d); err != nil {
		return job.Invalid("job.schedule", "%v", err)
	}
	shown := d
	if stored != nil && !d.Schedule.SamePhase(stored.Schedule) {
		shown.AnchorMS = w.now // as the edit will have it
	}
	w.wished[i], a.After = &d, &job.Record{Definition: &shown}
	if a.Before == nil {
		a.Action, a.PauseChanges = job.WishCreate, wish.Pause
		return nil
	}
	if err := job.MayTake(a.Before.Definition, &d); err != nil && !force {
		return err
	}
	a.After.State = a.Before.State
	paused := a.Before.State.Paused
	a.PauseChanges = wish.Pause && !paused || wish.Resume && paused
	if a.Action = job.WishUnchanged; a.PauseChanges || !w.asWished(i) {
		a.Action = job.WishUpdate
	}
	return nil
}

// faults is everything that is wrong with a wish: what could not be read, and what is
// out of bounds beside.
func faults(wish *job.Wish, v []job.Violation) error {
	var unread *job.InvalidError
	if errors.As(wish.Err, &unread) {
		v = append(slices.Clone(unread.Violations), v...)
	} else if wish.Err != nil {
		return wish.Err
	}
	return &job.InvalidError{Violations: v}
}

// passed tells whether a schedule that is not there has nothing left to do: the job
// has run, and is gone since its retention is over.
func (w *wishing) passed(i int) bool {
	d := w.answers[i].After.Definition
	if d.Schedule.Kind == schedule.KindOnce {
		return !d.Schedule.At.After(time.UnixMilli(w.now))
	}
	end := d.Schedule.EndAt
	return !end.IsZero() && !end.After(time.UnixMilli(w.now))
}
