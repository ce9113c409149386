package registry

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const (
	defaultLocks = 50
	maxLocks     = 250
	// shownOfLock bounds the holders, and the waiters, that are listed of a lock.
	shownOfLock = 20
)

// lockName names a lock.
type lockName struct{ namespace, key string }

// ListLocks lists the locks that the jobs of a part of the listing name, at most so many (0: defaultLocks), by
// namespace and key, with their holders and waiters. A page may be short or empty while Next is set.
func (r *Registry) ListLocks(ctx context.Context, f job.Filter, pageSize int, token string) (job.LockPage, error) {
	if err := validateFilter(f, 0); err != nil {
		return job.LockPage{}, err
	}
	if pageSize < 0 || pageSize > maxLocks {
		return job.LockPage{}, job.Invalid("page_size", "%s",
			fmt.Sprintf("is %d, want 1 to %d, or 0 for %d", pageSize, maxLocks, defaultLocks))
	}
	found := map[lockName]*job.LockStatus{}
	next, err := visitNames(ctx, r, f, token, "ListLocks", cmp.Or(pageSize, defaultLocks), namesOf[lockName]{
		of:    lockNames,
		known: func(n lockName) bool { return found[n] != nil },
		add: func(n lockName, record *job.Record) {
			l := found[n]
			if l == nil {
				l = &job.LockStatus{Namespace: n.namespace, Key: n.key}
				found[n] = l
			}
			l.Jobs++
			for _, named := range record.Definition.Locks {
				if named.Key == n.key {
					l.Capacity = max(l.Capacity, named.Limit)
				}
			}
		},
	})
	if err != nil {
		return job.LockPage{}, err
	}
	page := job.LockPage{Next: next}
	for _, l := range found {
		page.Locks = append(page.Locks, *l)
	}
	slices.SortFunc(page.Locks, func(a, b job.LockStatus) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Key, b.Key))
	})
	if err := r.addHoldersAndWaiters(ctx, page.Locks); err != nil {
		return job.LockPage{}, err
	}
	return page, nil
}

// lockNames returns the locks of a job, each once.
func lockNames(d *job.Definition) (names []lockName) {
	for _, l := range d.Locks {
		if n := (lockName{d.Namespace, l.Key}); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// addHoldersAndWaiters adds the runs that hold locks or wait for them.
func (r *Registry) addHoldersAndWaiters(ctx context.Context, locks []job.LockStatus) error {
	names := make([]string, len(locks))
	for i, l := range locks {
		names[i] = job.LockName(l.Namespace, l.Key)
	}
	views := r.o.SharedLimits.ViewUnits(ctx, names, shownOfLock)
	v := r.newVisibility(ctx)
	holders := map[job.RecordID]*job.State{}
	for _, view := range views {
		if view.Err != nil {
			return view.Err
		}
		for _, h := range view.Holders {
			if record, _, ok := job.ParseLeaseID(h.Holder); ok {
				v.ask(record.Key())
				holders[record] = nil
			}
		}
		for _, w := range view.Waiters {
			v.ask(w.Record.Key())
		}
	}
	if err := v.read(ctx); err != nil {
		return err
	}
	if err := r.readHolders(ctx, holders); err != nil {
		return err
	}
	for i := range locks {
		locks[i].Held, locks[i].Waiting = views[i].Held, views[i].Waiting
		locks[i].Holders = r.viewHolders(views[i].Holders, holders, v)
		locks[i].Waiters = viewWaiters(views[i].Waiters, v)
	}
	return nil
}

// readHolders reads the states of records.
func (r *Registry) readHolders(ctx context.Context, holders map[job.RecordID]*job.State) error {
	byShard := map[int][]job.RecordID{}
	for id := range holders {
		shard := r.o.Store.ShardOf(id.Key())
		byShard[shard] = append(byShard[shard], id)
	}
	for shard, ids := range byShard {
		records, err := r.o.Store.GetRecords(ctx, shard, ids)
		if err != nil {
			return err
		}
		for i, record := range records {
			if record != nil {
				holders[ids[i]] = &record.State
			}
		}
	}
	return nil
}

// viewHolders shows holders; those of jobs that the caller may not see have no name.
func (r *Registry) viewHolders(stored []job.UnitHolder, states map[job.RecordID]*job.State,
	v *visibility) []job.LockHolder {
	shown := make([]job.LockHolder, len(stored))
	for i, h := range stored {
		shown[i] = job.LockHolder{SinceMS: h.SinceMS, EndMS: h.EndMS}
		record, token, ok := job.ParseLeaseID(h.Holder)
		if !ok || !v.sees(record.Key()) {
			continue
		}
		shown[i].Job = record.Key()
		if s := states[record]; s != nil && s.Live() && s.Token == token {
			shown[i].RunID = s.RunID()
			if r.o.WorkerOf != nil {
				shown[i].Worker = r.o.WorkerOf(record, token)
			}
		}
	}
	return shown
}

// viewWaiters shows waiters; those of jobs that the caller may not see have neither a name nor a time.
func viewWaiters(stored []job.UnitWaiter, v *visibility) []job.LockWaiter {
	shown := make([]job.LockWaiter, len(stored))
	for i, w := range stored {
		shown[i].ReservedMS = w.ReservedMS
		if v.sees(w.Record.Key()) {
			shown[i].Job, shown[i].SinceMS = w.Record.Key(), unixtime.Milli(w.Rank)
		}
	}
	return shown
}
