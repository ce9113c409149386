package audittrail

import (
	"context"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/callturn"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

// maxPlaceWait bounds the wait of a call for a place in line.
const maxPlaceWait = 5 * time.Second

// stuckAfter is how long the writer tries in vain before calls go ahead without a place.
const stuckAfter = 5 * time.Second

// places are the places in line: of records that wait, and of calls that may leave one.
type places struct {
	mu    sync.Mutex
	table *fairshare.Table
	freed chan struct{} // closed when places are given back; nil: nobody waits for that
	// tryingSince is when the writer began to write without having stored anything since; zero: it has nothing to write,
	// or has just stored something.
	tryingSince time.Time
}

func newPlaces(n int) *places {
	return &places{table: fairshare.New(fairshare.Limits{Places: n, Identity: 1})}
}

func (p *places) tryTake(holder string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table.Acquire(fairshare.Holder{Identity: holder})
}

// takeOrWatch takes a place, or returns what is closed when some are given back.
func (p *places) takeOrWatch(holder string) (freed <-chan struct{}, taken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.table.Acquire(fairshare.Holder{Identity: holder}) {
		return nil, true
	}
	if p.freed == nil {
		p.freed = make(chan struct{})
	}
	return p.freed, false
}

// give gives back a place of each holder.
func (p *places) give(holders ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, holder := range holders {
		p.table.Release(fairshare.Holder{Identity: holder})
	}
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

func (p *places) beginWrite() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tryingSince.IsZero() {
		p.tryingSince = time.Now()
	}
}

// endTrying notes that something was stored, or that there is nothing to write any more.
func (p *places) endTrying() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tryingSince = time.Time{}
}

// isStuck reports whether the store has taken nothing for a while.
func (p *places) isStuck() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.tryingSince.IsZero() && time.Since(p.tryingSince) >= stuckAfter
}

// Reserve takes a place in line for the record that a call may leave, before the call changes anything. One holder may
// have half of all places, several have equal parts. While there is none for a holder, the call waits for up to 5 s,
// without its turn on the node (see callturn), and gets [job.ErrAuditQueueFull] then. While the store takes nothing,
// the call gets no place, and no error. Without an error, Record or Release has to follow.
func (r *Recorder) Reserve(ctx context.Context, holder string) (place job.TrailPlace, err error) {
	if r.places.tryTake(holder) {
		return job.TrailPlace{Holder: holder, Held: true}, nil
	}
	err = callturn.Wait(ctx, func() error {
		place, err = r.waitForPlace(ctx, holder)
		return err
	})
	if err != nil { // perhaps there is a place, but the call did not get its turn again
		r.Release(place)
		return job.TrailPlace{}, err
	}
	return place, nil
}

func (r *Recorder) waitForPlace(ctx context.Context, holder string) (job.TrailPlace, error) {
	timer := time.NewTimer(maxPlaceWait)
	defer timer.Stop()
	for expired := false; ; {
		freed, taken := r.places.takeOrWatch(holder)
		switch {
		case taken:
			return job.TrailPlace{Holder: holder, Held: true}, nil
		case r.places.isStuck():
			return job.TrailPlace{Holder: holder}, nil
		case expired:
			return job.TrailPlace{}, job.ErrAuditQueueFull
		}
		select {
		case <-freed:
		case <-timer.C:
			expired = true
		case <-ctx.Done():
			return job.TrailPlace{}, context.Cause(ctx)
		}
	}
}

// Release gives back the place of a call that leaves no record.
func (r *Recorder) Release(place job.TrailPlace) {
	if place.Held {
		r.places.give(place.Holder)
	}
}
