package registry

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
)

// This file walks the jobs that a caller may see, for callers who may not see all: by shard, and in a shard by name. It
// reads the index of the lanes that the caller may see, and no others, so that neither the work of a page nor its token
// depends on what is hidden. Callers who may see everything walk the jobs as they are stored.

// visibleCursorMark begins the cursors of such a walk.
const visibleCursorMark = "v"

// visibleCursor is where a walk continues: after a record of a shard.
type visibleCursor struct {
	shard int
	after job.RecordID
}

func (c visibleCursor) String() string {
	return fmt.Sprintf("%s%d.%s", visibleCursorMark, c.shard, c.after)
}

func (c visibleCursor) isBefore(shard int, record job.RecordID) bool {
	return c.shard < shard || c.shard == shard && c.after < record
}

// parseVisibleCursor reads a cursor; "" is the start.
func parseVisibleCursor(text string) (visibleCursor, error) {
	if text == "" {
		return visibleCursor{}, nil
	}
	number, after, ok := strings.Cut(strings.TrimPrefix(text, visibleCursorMark), ".")
	shard, err := strconv.Atoi(number)
	if !ok || err != nil || shard < 0 || !strings.HasPrefix(text, visibleCursorMark) {
		return visibleCursor{}, fmt.Errorf("%w: %.40q", job.ErrCursor, text)
	}
	return visibleCursor{shard, job.RecordID(after)}, nil
}

// isLimited reports whether a filter hides what others have.
func isLimited(f *job.Filter) bool { return f.Limited || f.Covers != nil || f.Scope != nil }

// walksVisible reports whether a listing reads the lanes that the caller may see.
func (r *Registry) walksVisible(f *job.Filter, cursor string) bool {
	isOfEarlierNode := f.TrustedPlace && cursor != "" && !strings.HasPrefix(cursor, visibleCursorMark)
	return r.o.Lanes != nil && isLimited(f) && !isOfEarlierNode
}

// visibleWalk reads the index of what a filter may select and the caller may see.
type visibleWalk struct {
	registry *Registry
	filter   job.Filter
	part     scores
	want     func(job.RecordID) bool
}

// ranges returns the parts of the index that a walk reads. A job that was moved while its run is live is in the lane of
// its former queue, so the live runs of queues that the filter does not name are among them. ok: there are not too many
// lanes.
func (w *visibleWalk) ranges(ctx context.Context) (ranges []job.IndexRange, ok bool, err error) {
	f, plan := w.filter, planOf(w.filter)
	lanes, _, err := w.registry.findLanes(ctx, &f, &plan)
	if err != nil {
		return nil, false, err
	}
	ranges = appendRanges(ranges, lanes, w.part)
	live := scoresOf(job.StatusRunning)
	live = scores{max(live.first, w.part.first), min(live.last, w.part.last)}
	if (f.Queue != "" || plan.Queues != nil) && live.first <= live.last {
		lanes, err := w.otherLanes(ctx)
		if err != nil {
			return nil, false, err
		}
		ranges = appendRanges(ranges, lanes, live)
	}
	return ranges, len(ranges) <= maxOpenedLanes, nil
}

// otherLanes lists the lanes of queues that the filter does not name.
func (w *visibleWalk) otherLanes(ctx context.Context) ([]job.ShardLane, error) {
	f, plan := w.filter, planOf(w.filter)
	queue, queues := f.Queue, plan.Queues
	f.Queue, plan.Queues = "", nil
	lanes, _, err := w.registry.findLanes(ctx, &f, &plan)
	return slices.DeleteFunc(lanes, func(l job.ShardLane) bool {
		name := l.Lane.Queue
		return (queue == "" || queue == name) && (queues == nil || slices.Contains(queues, name))
	}), err
}

func appendRanges(ranges []job.IndexRange, lanes []job.ShardLane, part scores) []job.IndexRange {
	for _, l := range lanes {
		ranges = append(ranges, job.IndexRange{Shard: l.Shard, Lane: l.Lane, Min: part.first, Max: part.last,
			Limit: maxFewJobs})
	}
	return ranges
}

// next returns the entries that follow a cursor, those of the shards before end, by shard and name. ok: the walk can be
// made; otherwise the next shard has too many entries for one call, or there are too many lanes.
func (w *visibleWalk) next(ctx context.Context, from visibleCursor) (entries []job.IndexEntry, end int, ok bool,
	err error) {
	ranges, ok, err := w.ranges(ctx)
	if err != nil || !ok {
		return nil, 0, false, err
	}
	ranges = slices.DeleteFunc(ranges, func(r job.IndexRange) bool { return r.Shard < from.shard })
	counts, err := w.registry.o.Store.CountIndex(ctx, ranges)
	if err != nil {
		return nil, 0, false, err
	}
	byShard := map[int]int{}
	for i, n := range counts {
		byShard[ranges[i].Shard] += n
	}
	end = from.shard
	read := 0
	for end < w.registry.o.Store.Shards() && (read == 0 || read+byShard[end] <= maxIndexed) {
		read += byShard[end]
		end++
	}
	if read > maxFewJobs {
		return nil, 0, false, nil
	}
	var filled []job.IndexRange
	for i, n := range counts {
		if n > 0 && ranges[i].Shard < end {
			ranges[i].Expected = n
			filled = append(filled, ranges[i])
		}
	}
	parts, err := w.registry.o.Store.ReadIndex(ctx, filled)
	entries = slices.DeleteFunc(slices.Concat(parts...), func(e job.IndexEntry) bool {
		return !from.isBefore(e.Shard, e.Record) || !w.want(e.Record)
	})
	slices.SortFunc(entries, func(a, b job.IndexEntry) int {
		return visibleCursor{a.Shard, a.Record}.compare(visibleCursor{b.Shard, b.Record})
	})
	// A record that moves from lane to lane meanwhile may be in both.
	entries = slices.CompactFunc(entries, func(a, b job.IndexEntry) bool {
		return a.Shard == b.Shard && a.Record == b.Record
	})
	return entries, end, err == nil, err
}

func (c visibleCursor) compare(d visibleCursor) int {
	if c.shard != d.shard {
		return c.shard - d.shard
	}
	return strings.Compare(string(c.after), string(d.after))
}

// readVisible reads about n items of a walk. read returns an item for each entry that has one, and how many bytes it
// has read. ok is false where the walk cannot be made: then the caller walks what is stored.
func readVisible[T any](ctx context.Context, w *visibleWalk, cursor string, n int,
	read func([]job.IndexEntry) (items []T, bytes int, err error)) (items []T, next string, bytes int, ok bool,
	err error) {
	from, cursorErr := parseVisibleCursor(cursor)
	entries, end, ok, err := w.next(ctx, from)
	if err != nil || !ok {
		return nil, "", 0, false, err
	}
	if cursorErr != nil {
		return nil, "", 0, false, cursorErr
	}
	looked := 0
	for size := readAtOnce; looked < min(n, len(entries)) && bytes < pageBytes; {
		part := entries[looked:min(looked+size, n, len(entries))]
		found, some, err := read(part)
		if err != nil {
			return nil, "", 0, false, err
		}
		items, bytes, looked = append(items, found...), bytes+some, looked+len(part)
		size = min(2*size, maxEntriesAtOnce, recordsWithin(pageBytes-bytes, looked, bytes))
	}
	switch {
	case looked < len(entries):
		next = visibleCursor{entries[looked-1].Shard, entries[looked-1].Record}.String()
	case end < w.registry.o.Store.Shards():
		next = visibleCursor{end, ""}.String()
	}
	return items, next, bytes, true, nil
}

// jobsVisible walks jobs.
func (r *Registry) jobsVisible(ctx context.Context, f job.Filter, cursor string, n int) (records []job.Record,
	next string, bytes int, ok bool, err error) {
	plan := planOf(f)
	w := &visibleWalk{registry: r, filter: f, part: scoresOf(plan.Status, f.Status),
		want: func(id job.RecordID) bool { return id.IsJob() && wantsRecord(&f, &plan, id) }}
	return readVisible(ctx, w, cursor, n, func(entries []job.IndexEntry) (found []job.Record, bytes int, err error) {
		list, err := r.o.Store.ReadEntries(ctx, entries)
		for _, record := range list {
			if record != nil {
				found, bytes = append(found, *record), bytes+record.ResponseSize()
			}
		}
		return found, bytes, err
	})
}

// lettersVisible walks dead letters.
func (r *Registry) lettersVisible(ctx context.Context, f job.Filter, cursor string, n int) (letters []job.DeadLetter,
	next string, bytes int, ok bool, err error) {
	w := &visibleWalk{registry: r, filter: f, part: scoresOf(job.StatusDead),
		want: func(id job.RecordID) bool { return !id.IsRun() && strings.HasPrefix(id.Key().ID, f.IDPrefix) }}
	// The language of a filter selects by the job, whose queue may be another than that of the run.
	w.filter.Condition = nil
	return readVisible(ctx, w, cursor, n, func(entries []job.IndexEntry) ([]job.DeadLetter, int, error) {
		return r.o.Store.ReadDeadLetters(ctx, entries)
	})
}
