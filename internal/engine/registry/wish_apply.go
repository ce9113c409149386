package registry

import (
	"context"
	"errors"

	"github.com/fermata-io/fermata/internal/core/job"
)

// pauseNote tells people who holds a job.
const pauseNote = "paused by its configuration"

// Apply makes jobs what they are wished to be: those that differ are created,
// replaced, deleted, paused or resumed, each in a step of its own that is refused when
// the job is no longer the one that the wish names by its etag. One that is as wished
// is left alone.
func (r *Registry) Apply(ctx context.Context, wishes []job.Wish, force bool) []job.WishAnswer {
	w := r.survey(ctx, wishes, force)
	for i := range w.answers {
		if a := &w.answers[i]; a.Err == nil {
			a.Err = w.condition(i)
		}
	}
	w.create(ctx)
	for _, first := range []bool{true, false} {
		w.change(ctx, first)
	}
	w.delete(ctx)
	return w.answers
}

// condition refuses a wish that was made of a job as it is no longer. A repeated wish
// finds what the first copy of it left.
func (w *wishing) condition(i int) error {
	wish, a := &w.wishes[i], &w.answers[i]
	key := wish.Definition.Key
	switch {
	case a.Action == job.WishUnchanged:
		return nil
	case wish.Delete && wish.Etag == "":
		return job.Invalid("etag", "is missing: name the job that is to be deleted")
	case a.Before == nil && (wish.Etag == "" || wish.Delete):
		return nil
	case a.Before == nil:
		return &job.MissingError{Key: key}
	}
	have := a.Before.Definition.Etag()
	onlyPause := !wish.Delete && w.asWished(i)
	switch {
	case have == wish.Etag || onlyPause:
		return nil
	case wish.Etag == "":
		return &job.ExistsError{Key: key, Reason: "it has another definition"}
	}
	return &job.EtagError{Key: key, Have: have, Want: wish.Etag}
}

// create registers what is new.
func (w *wishing) create(ctx context.Context) {
	var requests []job.CreateRequest
	var place []int
	for i, a := range w.answers {
		if a.Err == nil && a.Action == job.WishCreate {
			request := job.CreateRequest{Definition: w.wishes[i].Definition}
			if w.wishes[i].Pause {
				request.PauseNote = pauseNote
			}
			requests = append(requests, request)
			place = append(place, i)
		}
	}
	if len(requests) == 0 {
		return
	}
	for n, made := range w.r.CreateBatch(ctx, requests) {
		a := &w.answers[place[n]]
		if a.Err = made.Err; a.Err == nil {
			a.After = new(made.Record)
		}
	}
}

// change is one of two rounds that replace definitions, pause and resume. A job that is to
// be held is held before it changes, and one that is to go on gets its definition first.
func (w *wishing) change(ctx context.Context, first bool) {
	var changes []job.Change
	var place []int
	covers := w.r.reach(ctx)
	for i := range w.answers {
		a := &w.answers[i]
		if a.Err != nil || a.Action != job.WishUpdate {
			continue
		}
		for _, ev := range w.events(i, first) {
			changes = append(changes, job.Change{Record: a.Before.Definition.Record(), Event: ev, Covers: covers})
			place = append(place, i)
		}
	}
	changes, place, settle := w.reserve(ctx, changes, place)
	if len(changes) == 0 {
		settle(nil)
		return
	}
	results := w.r.commit(ctx, changes...)
	for n, result := range results {
		w.settle(place[n], result)
	}
	settle(results)
}

// reserve takes out of changes, and of their places, those definitions that are too large for
// the limit of their namespace. settle is to be called with the results of the others.
func (w *wishing) reserve(ctx context.Context, changes []job.Change, place []int) (_ []job.Change, _ []int, settle func([]job.ChangeResult)) {
	var edits []edit
	of := make([]int, len(changes)) // the edit of each change, or -1
	for n, c := range changes {
		of[n] = -1
		if u, ok := c.Event.(job.Update); ok {
			of[n] = len(edits)
			edits = append(edits, edit{w.answers[place[n]].Before.Definition, u.New.Definition})
		}
	}
	reserved, faults := w.r.reserveEdits(ctx, edits)
	var good []job.Change
	var places, editOf []int
	for n, c := range changes {
		if e := of[n]; e >= 0 && faults[e] != nil {
			w.answers[place[n]].Err = faults[e]
			continue
		}
		good, places, editOf = append(good, c), append(places, place[n]), append(editOf, of[n])
	}
	return good, places, func(results []job.ChangeResult) {
		at := map[int]job.ChangeResult{}
		for n, result := range results {
			at[editOf[n]] = result
		}
		reserved.settleEdits(ctx, func(i int, shrinks bool) bool {
			return faults[i] == nil && storesEdit(at[i], at[i].Err, shrinks)
		})
	}
}

// events are what a wish asks in the first round: to pause, or else to replace the
// definition; and in the second one what is left.
func (w *wishing) events(i int, first bool) []job.Event {
	wish, a := &w.wishes[i], &w.answers[i]
	pauses, resumes := a.PauseChanges && wish.Pause, a.PauseChanges && wish.Resume
	switch {
	case pauses && first:
		return []job.Event{job.Pause{Note: pauseNote}}
	case resumes && !first:
		return []job.Event{job.Resume{}}
	case w.asWished(i) || first == pauses:
		return nil
	}
	d := *w.wished[i]
	if a.Err = w.seal(i, &d); a.Err != nil {
		return nil
	}
	compiled, err := job.Compile(&d)
	if err != nil {
		a.Err = job.Invalid("job.schedule", "%v", err)
		return nil
	}
	return []job.Event{job.Update{New: compiled, Base: a.Before.Definition.Etag()}}
}

// asWished tells whether the stored definition is the one that is wished for. A payload that
// is not sealed is not, where it has to be; nor are policies whose values
// the wish has from elsewhere.
func (w *wishing) asWished(i int) bool {
	d := w.wished[i]
	unsealed := d.PayloadKey == "" && !w.wishes[i].AsRead && w.r.strict()
	return w.answers[i].Before.Definition.Same(d) && !unsealed && !w.pinned[i]
}

// seal readies the payload of a wished definition for being stored.
func (w *wishing) seal(i int, d *job.Definition) error {
	if w.wishes[i].AsRead || d.PayloadKey != "" {
		return w.r.keep(d, w.answers[i].Before.Definition)
	}
	w.r.seal(d, d.Payload)
	return nil
}

func (w *wishing) settle(i int, result job.ChangeResult) {
	a := &w.answers[i]
	key := w.wishes[i].Definition.Key
	switch {
	case errors.Is(result.Err, job.ErrNotFound), result.Err == nil && result.Record.State.Deleting:
		a.Err = &job.MissingError{Key: key}
	case result.Err != nil:
		a.Err = result.Err
	default:
		a.Err = w.outcome(i, result)
	}
}

// outcome answers a change by the job as it is now, which others may have changed since it
// was read.
func (w *wishing) outcome(i int, result job.ChangeResult) error {
	a := &w.answers[i]
	if err := w.wishes[i].Allowed(result.Record.Definition); err != nil {
		a.Before, a.After = nil, nil
		return err
	}
	if result.Answer == job.Stale && !w.r.sameAs(w.wished[i], result.Record.Definition) {
		return &job.EtagError{Key: w.wishes[i].Definition.Key, Have: result.Record.Definition.Etag(), Want: a.Before.Definition.Etag()}
	}
	a.After = &result.Record // as wished: by this call, a first copy of it, or somebody else
	return nil
}

// delete removes jobs that are to go.
func (w *wishing) delete(ctx context.Context) {
	var changes []job.Change
	var place []int
	for i, a := range w.answers {
		if a.Err == nil && a.Action == job.WishDelete && a.Before != nil {
			changes = append(changes, job.Change{Record: a.Before.Definition.Record(), Event: job.Delete{Base: w.wishes[i].Etag}, Covers: w.r.reach(ctx)})
			place = append(place, i)
		}
	}
	if len(changes) == 0 {
		return
	}
	var deleted []*job.Definition
	for n, result := range w.r.commit(ctx, changes...) {
		a := &w.answers[place[n]]
		switch {
		case errors.Is(result.Err, job.ErrNotFound):
		case result.Err != nil:
			a.Err = result.Err
		case result.Answer == job.Stale:
			if a.Err = w.wishes[place[n]].Allowed(result.Record.Definition); a.Err != nil {
				a.Before = nil
				continue
			}
			a.Err = &job.EtagError{Key: a.Before.Definition.Key, Have: result.Record.Definition.Etag(), Want: w.wishes[place[n]].Etag}
		case !result.Deleted:
			a.Err = w.r.dropWaiting(ctx, result.Record)
		default:
			deleted = append(deleted, a.Before.Definition)
		}
	}
	w.r.release(ctx, deleted...)
}

// sameAs tells whether a definition is the one that is stored, sealed or not.
func (r *Registry) sameAs(d, stored *job.Definition) bool {
	aligned := *d
	r.align(&aligned, stored)
	aligned.KeepFirstDay(stored)
	return stored.Same(&aligned)
}
