package limits

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// partsPerEntry is how many values the script answers for each holder, and for each waiter.
const partsPerEntry = 3

// ViewUnits reads the holders of limits and those that wait in line, at most so many of each. A view that has an error
// is empty.
func (s *Store) ViewUnits(ctx context.Context, names []string, most int) []job.UnitsView {
	items := make([]limitItem, len(names))
	for i, name := range names {
		items[i] = limitItem{name: name, argv: []any{most}, err: validateLimitNames(name)}
	}
	views := make([]job.UnitsView, len(names))
	for i, a := range s.runLimitItems(ctx, s.scripts.view, items, unitKeys...) {
		views[i] = readView(a)
	}
	return views
}

func readView(a limitReply) job.UnitsView {
	v := job.UnitsView{Err: a.err}
	if a.err != nil {
		return v
	}
	v.Held, v.Waiting = int(a.IntAt(0)), int(a.IntAt(1))
	holders, waiters := a.ListAt(2), a.ListAt(3)
	for i := 0; i+partsPerEntry <= len(holders); i += partsPerEntry {
		v.Holders = append(v.Holders, job.UnitHolder{
			Holder: holders.TextAt(i), EndMS: unixtime.Milli(holders.IntAt(i + 1)),
			SinceMS: unixtime.Milli(holders.IntAt(i + 2)),
		})
	}
	for i := 0; i+partsPerEntry <= len(waiters); i += partsPerEntry {
		v.Waiters = append(v.Waiters, job.UnitWaiter{
			Record: job.RecordID(waiters.TextAt(i)), Rank: waiters.IntAt(i + 1),
			ReservedMS: unixtime.Milli(waiters.IntAt(i + 2)),
		})
	}
	return v
}
