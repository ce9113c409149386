package worker

import (
	"slices"
	"time"
)

// Where slots are free in plenty, leases come some milliseconds before they are due. They
// take their slots at once and begin when they are due, by the time that has passed here
// since they came: whatever happens to their node or the stream meanwhile, as if they ran.

// Where much is held, what is due soon after something else begins together with it, up to
// company later: results that come together travel and are settled together, which costs a
// fraction. Of crowd attempts that would be one each 10 us.
const (
	company = 500 * time.Microsecond
	crowd   = 50
)

// Before orders attempts that are early by when they are due.
func (a *attempt) Before(other *attempt) bool { return a.startAt.Before(other.startAt) }

// Place is that among those that are early.
func (a *attempt) Place() *int { return &a.place }

// hold keeps an attempt that has a slot until it is due.
func (w *Worker) hold(a *attempt) {
	a.phase = early
	w.table.early.Push(a)
	if w.table.early.Top() == a {
		w.due.Set(a.startAt)
	}
}

// release takes out an attempt that has a slot and ends without having begun. The slot is free
// then.
func (w *Worker) release(a *attempt) {
	if a.phase == early {
		w.table.early.Remove(a)
	} else {
		w.table.ready.remove(a)
	}
	w.table.running--
	w.startNext()
	w.summon()
}

// beginDue begins what is due.
func (w *Worker) beginDue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := &w.table.early
	now := time.Now()
	for len(*held) > 0 && !(*held).Top().startAt.After(now) {
		a := (*held).Top()
		held.Remove(a)
		w.begin(a)
	}
	if len(*held) > 0 {
		w.due.Set(together((*held).Top().startAt, now, len(*held)))
	}
	w.summon()
}

// together is when to begin what is due next, after something has begun now and so many are
// held.
func together(due, now time.Time, held int) time.Time {
	if soonest := now.Add(min(company, time.Duration(held)*company/crowd)); due.Before(soonest) {
		return soonest
	}
	return due
}

// giveBackEarly returns attempts that are not due yet, like giveBack. One that a Hello
// named counts as started, and as failed if it comes back: it begins instead, before long.
func (w *Worker) giveBackEarly(s *session, when func(*attempt) bool) {
	for _, a := range slices.Clone(w.table.early) {
		if !when(a) {
			continue
		}
		w.release(a)
		w.forget(a)
		w.sayReturned(a, s)
	}
}
