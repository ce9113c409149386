package registry

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/jobfilter"
)

// This file lists jobs in an order. A page continues after the place of the last job that the page before it looked
// at: its value in the order and its name. So pages are stable while jobs come and go; a job whose value changes
// meanwhile may be on two pages or on none. A page is always in order: a job that has moved since its index was read
// is left to the page where it is now.

const (
	// maxIndexed bounds the entries of indexes that one call reads to sort jobs by id.
	maxIndexed = 20_000
	// maxSorted bounds the states that one call reads to sort jobs by them.
	maxSorted = 5000
	// maxOpenedLanes bounds the lanes whose entries one call reads or counts.
	maxOpenedLanes = 20_000
	// maxEntriesAtOnce bounds the records of a list that are read at once.
	maxEntriesAtOnce = 256
	// defaultUpcoming is the default size of a page of runs that are due next.
	defaultUpcoming = 20
)

// Index reads the index of lanes.
type Index interface {
	ReadIndex(ctx context.Context, ranges []job.IndexRange) ([][]job.IndexEntry, error)
	CountIndex(ctx context.Context, ranges []job.IndexRange) ([]int, error)
	// SkipTies returns for each lane how many entries with a score certainly come before a record.
	SkipTies(ctx context.Context, lanes []job.ShardLane, score int64, after job.RecordID) ([]int, error)
	// ReadEntries and ReadStates read the records of entries; nil: there is no such record.
	ReadEntries(ctx context.Context, entries []job.IndexEntry) ([]*job.Record, error)
	ReadStates(ctx context.Context, entries []job.IndexEntry) ([]*job.State, error)
	// ReadScores returns the scores that records with these states have in their lanes; 0: it is in none.
	ReadScores(ctx context.Context, entries []job.IndexEntry, states []*job.State) ([]int64, error)
}

// place is where a list in an order continues. Callers can read it: it names a job that they were shown or that is in
// a queue which they may see.
type place struct {
	Value  int64        `json:"v"`
	Record job.RecordID `json:"r"`
	Filter string       `json:"f"`
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.Value, q.Value), cmp.Compare(p.Record, q.Record))
}

func (p place) encodeToken() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// parsePlace reads a token and refuses one of another list.
func parsePlace(token, call string, f job.Filter) (place, error) {
	fingerprint := fingerprintFilter(call, f)
	if token == "" {
		return place{Value: -1 << 62, Filter: fingerprint}, nil
	}
	var p place
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	switch {
	case p.Filter != fingerprint && err == nil:
		return p, job.Invalid("page_token", "belongs to a listing with another parent, filter or order")
	case err != nil, p.Record == "":
		return p, job.Invalid("page_token", "is not one that %s gave", call)
	}
	return p, nil
}

// candidate is an entry of an index with its place in the order.
type candidate struct {
	job.IndexEntry
	at place
}

// step is a part of a list in an order.
type step struct {
	found []candidate
	// at is the place of the last entry that was looked at, and may be after the last one that was found. Without a
	// record: none was.
	at place
	// ended: nothing follows. spent: the call has read as much as it may.
	ended, spent bool
}

// candidates is a source of entries in the order of a list.
type candidates interface {
	// next returns the next entries, about n.
	next(ctx context.Context, n int) (step, error)
	// placeOf returns the place of a record as it was read, for an entry of this source. false: it has none.
	placeOf(c *candidate, s *job.State) (place, bool)
}

// orderedPage builds one page of a list in an order.
type orderedPage struct {
	registry *Registry
	size     int
	want     func(*job.Record) bool
	started  time.Time
	from, at place // the page begins after from; everything up to at has been looked at

	found             []listed
	looked, read      int
	bytes             int
	ended, incomplete bool
}

// listed is a record with its place in the order.
type listed struct {
	place
	record *job.Record
}

func (p *orderedPage) fill(ctx context.Context, source candidates) error {
	for {
		s, err := source.next(ctx, p.chunk())
		if err != nil {
			return err
		}
		full, err := p.take(ctx, source, s.found)
		if err != nil {
			return err
		}
		if !full {
			p.advance(s.at)
		}
		switch {
		case full:
		case s.ended:
			p.ended = true
		case s.spent, p.looked >= scanRecords, p.read >= pageBytes, time.Since(p.started) >= p.registry.o.ScanTime:
			p.incomplete = true
		default:
			continue
		}
		slices.SortFunc(p.found, func(a, b listed) int { return a.compare(b.place) })
		return nil
	}
}

// advance moves the place up to which everything has been looked at.
func (p *orderedPage) advance(to place) {
	if to.Record != "" {
		to.Filter = p.at.Filter
		p.at = to
	}
}

// chunk is how many entries are read next: where few match, more than the page has room for.
func (p *orderedPage) chunk() int {
	room := p.size - len(p.found)
	return min(max(room, p.looked-len(p.found), 16), filterChunk)
}

// take reads the records of entries and adds those that match. full: there was no room for all of them.
func (p *orderedPage) take(ctx context.Context, source candidates, entries []candidate) (full bool, err error) {
	for n := readAtOnce; len(entries) > 0; n = p.nextRead(n) {
		part := entries[:min(n, len(entries))]
		entries = entries[len(part):]
		indexed := make([]job.IndexEntry, len(part))
		for i := range part {
			indexed[i] = part[i].IndexEntry
		}
		records, err := p.registry.o.Store.ReadEntries(ctx, indexed)
		if err != nil {
			return false, err
		}
		for i, record := range records {
			if len(p.found) >= p.size || p.bytes >= pageBytes {
				return true, nil
			}
			p.add(source, &part[i], record)
		}
	}
	return false, nil
}

// nextRead is how many records are read next: at most twice as many as before, and by the mean size of those that were
// read no more than a page may read.
func (p *orderedPage) nextRead(before int) int {
	return min(2*before, maxEntriesAtOnce, recordsWithin(pageBytes-p.read, p.looked, p.read))
}

func (p *orderedPage) add(source candidates, c *candidate, record *job.Record) {
	p.advance(c.at)
	p.looked++
	if record == nil {
		return
	}
	p.read += record.ResponseSize()
	now, ok := source.placeOf(c, &record.State)
	if !ok || now.compare(p.from) <= 0 || now.compare(p.at) > 0 || !p.want(record) {
		return
	}
	p.found = append(p.found, listed{now, record})
	p.bytes += record.ResponseSize()
}

// token returns the token of the page that follows.
func (p *orderedPage) token() string {
	if p.ended {
		return ""
	}
	return p.at.encodeToken()
}

// listInOrder is List in an order.
func (r *Registry) listInOrder(ctx context.Context, f job.Filter, size int, token string) (job.Page, error) {
	at, err := parsePlace(token, "ListJobs", f)
	if err != nil {
		return job.Page{}, err
	}
	p := &orderedPage{registry: r, size: size, started: time.Now(), from: at, at: at,
		want: func(record *job.Record) bool { return matchesFilter(f, record) }}
	plan := planOf(f)
	if plan.Nothing {
		return job.Page{}, nil
	}
	source, err := r.openList(ctx, p, f, plan)
	if err != nil {
		return job.Page{}, err
	}
	if err := p.fill(ctx, source); err != nil {
		return job.Page{}, err
	}
	return p.page(), nil
}

// openList returns the source of a list of jobs in an order.
func (r *Registry) openList(ctx context.Context, p *orderedPage, f job.Filter,
	plan jobfilter.Plan) (candidates, error) {
	keys, _, ok, err := r.namedJobs(ctx, &f, &plan)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return r.findNamed(ctx, keys, f.Order, p.from)
	case f.Order == job.OrderNextDue:
		return r.mergeLanes(ctx, p, f, plan, scoresOf(plan.Status, f.Status), false)
	}
	return r.sortJobs(ctx, f, plan, p.from)
}

func (p *orderedPage) page() job.Page {
	page := job.Page{Next: p.token(), Incomplete: p.incomplete}
	for _, l := range p.found {
		page.Records = append(page.Records, *l.record)
	}
	return page
}

// ListUpcoming lists the planned runs that are due next.
func (r *Registry) ListUpcoming(ctx context.Context, q job.UpcomingQuery) (job.UpcomingPage, error) {
	f := q.Filter
	if err := validateFilter(f, q.PageSize); err != nil {
		return job.UpcomingPage{}, err
	}
	f.Order = job.OrderNextDue
	at, err := parsePlace(q.Token, fmt.Sprintf("ListUpcomingJobs %v", q.ExcludeHeld), f)
	plan := planOf(f)
	if err != nil || plan.Nothing {
		return job.UpcomingPage{}, err
	}
	p := &orderedPage{registry: r, size: cmp.Or(q.PageSize, defaultUpcoming), started: time.Now(), from: at, at: at,
		want: func(record *job.Record) bool {
			held := record.State.Held.Reason != job.HeldNone || r.queuePaused(record.Definition)
			return record.State.Region == job.RegionDue && !(q.ExcludeHeld && held) && matchesFilter(f, record)
		}}
	source, err := r.openUpcoming(ctx, p, f, plan)
	if err != nil {
		return job.UpcomingPage{}, err
	}
	if err := p.fill(ctx, source); err != nil {
		return job.UpcomingPage{}, err
	}
	page := job.UpcomingPage{Next: p.token(), Incomplete: p.incomplete}
	for _, l := range p.found {
		page.Runs = append(page.Runs, job.UpcomingRun{Record: *l.record, QueuePaused: r.queuePaused(l.record.Definition)})
	}
	return page, nil
}

// openUpcoming returns the source of a list of planned runs.
func (r *Registry) openUpcoming(ctx context.Context, p *orderedPage, f job.Filter, plan jobfilter.Plan) (candidates,
	error) {
	planned := scores{0, job.Score(job.RegionDue, job.NeverMS) - 1}
	keys, _, ok, err := r.namedJobs(ctx, &f, &plan)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return r.findNamedRuns(ctx, keys, f, p.from, planned)
	}
	return r.mergeLanes(ctx, p, f, plan, planned, true)
}

func (r *Registry) queuePaused(d *job.Definition) bool {
	return r.o.QueuePaused != nil && r.o.QueuePaused(job.QueueKey{Namespace: d.Namespace, Queue: d.Queue})
}

// planOf returns bounds of what a filter selects.
func planOf(f job.Filter) jobfilter.Plan {
	c, _ := f.Condition.(*jobfilter.Filter)
	return c.Plan()
}

// findLanes lists the lanes that may have selected jobs, in the order of their due times. Lanes of hidden queues are
// not read at all.
func (r *Registry) findLanes(ctx context.Context, f *job.Filter, plan *jobfilter.Plan) (lanes []job.ShardLane,
	isCurrent bool, err error) {
	if r.o.Lanes == nil {
		return nil, false, errors.New("registry: Options.Lanes is not set")
	}
	if f.Namespace != "" && plan.Namespace != "" && plan.Namespace != f.Namespace {
		return nil, true, nil
	}
	q := job.LaneQuery{Namespace: cmp.Or(f.Namespace, plan.Namespace), Queues: plan.Queues,
		Wants: func(q job.QueueKey) bool { return f.CoversAll(q.Queue) && (f.Scope == nil || f.Scope(q)) }}
	if f.Queue != "" {
		if plan.Queues != nil && !slices.Contains(plan.Queues, f.Queue) {
			return nil, true, nil
		}
		q.Queues = []string{f.Queue}
	}
	return r.o.Lanes.FindLanes(ctx, q)
}

// wantsRecord reports whether an entry may be selected, by its id alone.
func wantsRecord(f *job.Filter, plan *jobfilter.Plan, record job.RecordID) bool {
	id := record.Key().ID
	return strings.HasPrefix(id, f.IDPrefix) && strings.HasPrefix(id, plan.IDPrefix) &&
		(plan.IDs == nil || slices.Contains(plan.IDs, id))
}

// scores are the first and last score of a part of a lane.
type scores struct{ first, last int64 }

// scoresOf returns where the jobs of a state are; StatusAny is no bound.
func scoresOf(states ...job.Status) scores {
	all := scores{0, job.Score(job.RegionDone, job.NeverMS)}
	for _, status := range states {
		first, last := job.RegionDue, job.RegionDone
		switch status {
		case job.StatusScheduled:
			last = job.RegionDue
		case job.StatusRunning:
			first, last = job.RegionLeased, job.RegionLeased
		case job.StatusPaused:
			first = job.RegionPaused // an ended job may be paused
		case job.StatusDead:
			first, last = job.RegionDead, job.RegionDead
		case job.StatusDone:
			first = job.RegionDone
		}
		all = scores{max(all.first, job.Score(first, 0)), min(all.last, job.Score(last, job.NeverMS))}
	}
	return all
}
