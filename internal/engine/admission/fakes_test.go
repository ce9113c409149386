package admission

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/slots"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// errDown is what fakes answer that are switched off.
var errDown = errors.New("connection refused")

// fakeLimits keeps limits as the scripts would, by the time of the bubble.
type fakeLimits struct {
	mu       sync.Mutex
	units    map[string]map[string]time.Time // limit -> holder -> expiry
	lines    map[string][]waiter
	rates    map[string]time.Time // until when starts are taken
	cells    map[string]string
	settings map[job.QueueKey]job.QueueSettings
	calls    map[string]int
	down     map[string]bool // calls that fail
	hang     map[string]bool // calls that never answer
	late     time.Duration   // of each answer
	// before runs before a swap has its effect, counted after rooms have been.
	before, counted func()
}

type waiter struct {
	record   job.RecordID
	rank     int64
	reserved bool
}

func newFakeLimits() *fakeLimits {
	return &fakeLimits{
		units: map[string]map[string]time.Time{}, lines: map[string][]waiter{}, rates: map[string]time.Time{},
		cells: map[string]string{}, settings: map[job.QueueKey]job.QueueSettings{},
		calls: map[string]int{}, down: map[string]bool{}, hang: map[string]bool{},
	}
}

// enter begins a call. The caller unlocks, whatever comes back.
func (f *fakeLimits) enter(ctx context.Context, name string) error {
	f.mu.Lock()
	late := f.late
	f.mu.Unlock()
	if late > 0 {
		time.Sleep(late)
	}
	f.mu.Lock()
	f.calls[name]++
	if f.hang[name] {
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
		return job.ErrUnavailable
	}
	if f.down[name] {
		return errDown
	}
	return ctx.Err()
}

func (f *fakeLimits) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// latency is how late answers are now.
func (f *fakeLimits) latency() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.late
}

func (f *fakeLimits) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

// holders lists who has units of a limit, sorted.
func (f *fakeLimits) holders(name string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.purge(name)
	return slices.Sorted(maps.Keys(f.units[name]))
}

func (f *fakeLimits) purge(name string) {
	if f.units[name] == nil {
		f.units[name] = map[string]time.Time{}
	}
	maps.DeleteFunc(f.units[name], func(_ string, expiry time.Time) bool { return !expiry.After(time.Now()) })
}

func (f *fakeLimits) AcquireUnits(ctx context.Context, asks []job.UnitRequest) []job.UnitGrant {
	err := f.enter(ctx, "acquire")
	defer f.mu.Unlock()
	grants := make([]job.UnitGrant, len(asks))
	for i, a := range asks {
		if grants[i].Err = err; err != nil {
			continue
		}
		f.purge(a.Name)
		held := f.units[a.Name]
		f.unline(a.Name, string(a.Waiter), true)
		_, mine := held[a.Holder]
		reserved := 0
		for _, w := range f.lines[a.Name] {
			if w.reserved {
				reserved++
			}
		}
		if mine || len(held)+reserved < a.Limit {
			held[a.Holder] = time.Now().Add(a.TTL)
			f.unline(a.Name, string(a.Waiter), false)
			grants[i].Granted = true
			continue
		}
		if a.Waiter != "" && !slices.ContainsFunc(f.lines[a.Name], func(w waiter) bool { return w.record == a.Waiter }) {
			f.lines[a.Name] = append(f.lines[a.Name], waiter{record: a.Waiter, rank: a.Rank})
			slices.SortStableFunc(f.lines[a.Name], func(a, b waiter) int { return cmp.Compare(a.rank, b.rank) })
		}
		grants[i].By = cmp.Or(slices.Concat(slices.Sorted(maps.Keys(held)), []string{""})[0])
		grants[i].NowMS = unixtime.MilliOf(time.Now())
		if line := f.lines[a.Name]; len(line) > 0 && line[0].record == a.Waiter {
			for _, expiry := range held {
				if ms := unixtime.MilliOf(expiry); grants[i].FreeMS == 0 || ms < grants[i].FreeMS {
					grants[i].FreeMS = ms
				}
			}
		}
	}
	return grants
}

// unline takes a waiter out of line, or only what is reserved for it.
func (f *fakeLimits) unline(name, record string, reservedOnly bool) {
	for i := range f.lines[name] {
		if w := &f.lines[name][i]; w.record == job.RecordID(record) {
			w.reserved = false
		}
	}
	if !reservedOnly {
		f.lines[name] = slices.DeleteFunc(f.lines[name], func(w waiter) bool { return w.record == job.RecordID(record) })
	}
}

func (f *fakeLimits) ReleaseUnits(ctx context.Context, releases []job.UnitRelease) []job.UnitReleased {
	err := f.enter(ctx, "release")
	defer f.mu.Unlock()
	out := make([]job.UnitReleased, len(releases))
	for i, r := range releases {
		if out[i].Err = err; err != nil {
			continue
		}
		f.purge(r.Name)
		delete(f.units[r.Name], r.Holder)
		if r.Waiter != "" {
			f.unline(r.Name, string(r.Waiter), false)
		}
		free := r.Limit - len(f.units[r.Name])
		for j := range f.lines[r.Name] {
			w := &f.lines[r.Name][j]
			if free <= 0 {
				break
			}
			if !w.reserved {
				out[i].Woken = append(out[i].Woken, w.record)
			}
			w.reserved = true
			free--
		}
	}
	return out
}

func (f *fakeLimits) RenewUnits(ctx context.Context, keeps []job.UnitRenewal) (lost []job.UnitRenewal, err error) {
	err = f.enter(ctx, "keep")
	defer f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for _, k := range keeps {
		f.purge(k.Name)
		if _, mine := f.units[k.Name][k.Holder]; !mine {
			lost = append(lost, k)
			continue
		}
		f.units[k.Name][k.Holder] = time.Now().Add(k.TTL)
	}
	return lost, nil
}

func (f *fakeLimits) FreeUnitsOf(ctx context.Context, asks []job.UnitRequest) ([]int, error) {
	err := f.enter(ctx, "rooms")
	defer f.mu.Unlock()
	rooms := make([]int, len(asks))
	for i, a := range asks {
		f.purge(a.Name)
		if err == nil {
			rooms[i] = max(0, a.Limit-len(f.units[a.Name]))
		}
	}
	if f.counted != nil {
		f.counted()
	}
	return rooms, err
}

func (f *fakeLimits) TakeRate(ctx context.Context, asks []job.RateRequest) []job.RateGrant {
	err := f.enter(ctx, "rate")
	defer f.mu.Unlock()
	grants := make([]job.RateGrant, len(asks))
	for i, a := range asks {
		if grants[i].Err = err; err != nil {
			continue
		}
		now := time.Now()
		taken := f.rates[a.Name]
		if taken.Before(now) {
			taken = now
		}
		slack := time.Duration(a.Burst-1) * a.Interval
		n, first := a.N, taken.Add(-slack)
		if !a.Reserve && a.N > 0 {
			for n = 0; n < a.N && !taken.Add(time.Duration(n)*a.Interval-slack).After(now); n++ {
			}
		}
		f.rates[a.Name] = taken.Add(time.Duration(n) * a.Interval)
		at := first
		if !a.Reserve {
			at = f.rates[a.Name].Add(-slack)
		}
		if at.Before(now) {
			at = now
		}
		grants[i] = job.RateGrant{N: n, AtMS: unixtime.MilliOf(at), NowMS: unixtime.MilliOf(now)}
	}
	return grants
}

func (f *fakeLimits) ReadCells(ctx context.Context, names []string) []job.CellReply {
	err := f.enter(ctx, "read")
	defer f.mu.Unlock()
	replies := make([]job.CellReply, len(names))
	for i, name := range names {
		replies[i] = job.CellReply{Text: f.cells[name], NowMS: unixtime.MilliOf(time.Now()), Err: err}
	}
	return replies
}

func (f *fakeLimits) SwapCells(ctx context.Context, swaps []job.CellSwap) []job.CellReply {
	err := f.enter(ctx, "swap")
	defer f.mu.Unlock()
	if f.before != nil {
		f.before()
	}
	replies := make([]job.CellReply, len(swaps))
	for i, s := range swaps {
		replies[i] = job.CellReply{NowMS: unixtime.MilliOf(time.Now()), Err: err}
		if err == nil && f.cells[s.Name] == s.Old {
			f.cells[s.Name], replies[i].Swapped = s.New, true
		}
		replies[i].Text = f.cells[s.Name]
	}
	return replies
}

func (f *fakeLimits) QueueSettings(ctx context.Context) (map[job.QueueKey]job.QueueSettings, error) {
	err := f.enter(ctx, "settings")
	defer f.mu.Unlock()
	return maps.Clone(f.settings), err
}

func (f *fakeLimits) SwapQueueSettings(ctx context.Context, q job.QueueKey, old, s job.QueueSettings, _ string) error {
	err := f.enter(ctx, "swap settings")
	defer f.mu.Unlock()
	switch {
	case err != nil:
		return err
	case f.settings[q] != old:
		return job.ErrSettingsChanged
	}
	f.settings[q] = s
	return nil
}

// fakeStore has the records; its ledger decides on them as the real one does.
type fakeStore struct {
	mu      sync.Mutex
	records map[job.RecordID]*job.Record
	down    bool
	changes []job.Change
	// delay holds up what matches, for the ledger.
	delay func(job.Change) time.Duration
	// refuse answers a change with an error, once for each entry.
	refuse map[job.RecordID]error
}

func (s *fakeStore) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *fakeStore) state(record job.RecordID) job.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[record]; r != nil {
		return r.State
	}
	return job.State{}
}

func (s *fakeStore) Now(context.Context, int) (unixtime.Milli, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return 0, errDown
	}
	return unixtime.MilliOf(time.Now()), nil
}

func (s *fakeStore) Latest(int) lease.ClockBound {
	return lease.ClockBound{MS: unixtime.MilliOf(time.Now())}
}

func (s *fakeStore) GetRecords(_ context.Context, _ int, records []job.RecordID) ([]*job.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errDown
	}
	out := make([]*job.Record, len(records))
	for i, r := range records {
		if rec := s.records[r]; rec != nil {
			clone := *rec
			out[i] = &clone
		}
	}
	return out, nil
}

func (s *fakeStore) CompiledDefinition(_ job.RecordID, d *job.Definition) (*job.Compiled, error) {
	return job.Compile(d)
}

func (s *fakeStore) Submit(c job.Change, done func(job.ChangeResult)) {
	go func() {
		s.mu.Lock()
		s.changes = append(s.changes, c)
		var wait time.Duration
		if s.delay != nil {
			wait = s.delay(c)
		}
		s.mu.Unlock()
		time.Sleep(wait)
		s.mu.Lock()
		r := s.apply(c)
		s.mu.Unlock()
		done(r)
	}()
}

func (s *fakeStore) apply(c job.Change) job.ChangeResult {
	if err := s.refuse[c.Record]; err != nil {
		delete(s.refuse, c.Record)
		return job.ChangeResult{Err: err}
	}
	rec := s.records[c.Record]
	if rec == nil {
		return job.ChangeResult{Err: job.ErrNotFound}
	}
	compiled, err := job.Compile(rec.Definition)
	if err != nil {
		return job.ChangeResult{Err: err}
	}
	now := unixtime.MilliOf(time.Now())
	parentID := c.Record.Job()
	var d job.Decision
	var owner *job.Decision
	if parentID == c.Record {
		d = job.Decide(compiled, rec.State, c.Input, now)
		owner = &d
	} else {
		pair := job.DecideChild(compiled, s.records[parentID].State, rec.State, c.Input, now)
		d, owner = pair.Child, &pair.Parent
		if owner.Changed {
			s.records[parentID].State = owner.State
		}
	}
	if d.Changed {
		rec.State = d.State
	}
	if d.Delete {
		delete(s.records, c.Record)
	}
	if sp := owner.Spawn; sp != nil {
		s.records[parentID.Run(sp.Slot)] = &job.Record{Definition: rec.Definition, State: sp.State}
	}
	return job.ChangeResult{
		Answer: d.Answer, Record: *rec, Deleted: d.Delete, Arrival: d.Arrival, Spawn: owner.Spawn,
		CancelChildren: d.CancelChildren, TerminateChildren: d.TerminateChildren,
	}
}

// events lists what was submitted for a record, by type.
func (s *fakeStore) events(record job.RecordID) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, c := range s.changes {
		if c.Record == record {
			out = append(out, strings.TrimPrefix(typeName(c.Input), "job."))
		}
	}
	return out
}

// fakeSlots takes everything; what is returned is decided on like by the dispatcher.
type fakeSlots struct {
	mu        sync.Mutex
	ledger    Ledger
	delivered []job.Leased
	batches   [][]string
	at        []time.Time
	open      int // slots reserved
	returned  []string
	abandoned []string
	cancelled []string
}

type fakeReservation struct {
	f    *fakeSlots
	n    int
	done bool
}

func (f *fakeSlots) ReserveWaiting(namespace, queue string, n int) slots.Reservation {
	return f.Reserve(namespace, queue, n)
}

func (f *fakeSlots) Reserve(_, _ string, n int) slots.Reservation {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open += n
	return &fakeReservation{f: f, n: n}
}

func (f *fakeSlots) MayAdvance(string, string) bool { return true }

func (r *fakeReservation) Count() int    { return r.n }
func (r *fakeReservation) Advance() bool { return true }

func (r *fakeReservation) Split(n int) slots.Reservation {
	n = min(n, r.n)
	r.n -= n
	return &fakeReservation{f: r.f, n: n}
}

func (r *fakeReservation) Deliver(leases []job.Leased) {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	if r.done {
		panic("a reservation is delivered twice")
	}
	r.done = true
	r.f.open -= r.n
	r.f.delivered = append(r.f.delivered, leases...)
	r.f.at = append(r.f.at, time.Now())
	var names []string
	for _, l := range leases {
		names = append(names, string(l.Record))
	}
	r.f.batches = append(r.f.batches, names)
}

func (f *fakeSlots) ReturnLeases(leases []job.Leased) {
	for _, l := range leases {
		f.mu.Lock()
		f.returned = append(f.returned, string(l.Record))
		f.mu.Unlock()
		f.ledger.Submit(job.Change{Record: l.Record, Input: job.ReturnLease{Token: l.Known.State.Token}}, func(job.ChangeResult) {})
	}
}

func (f *fakeSlots) AbandonAttempt(record job.RecordID, _ uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.abandoned = append(f.abandoned, string(record))
	return true
}

func (f *fakeSlots) CancelAttempt(record job.RecordID, _ uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancelled = append(f.cancelled, string(record))
}

// got returns the records delivered so far, sorted.
func (f *fakeSlots) got() []job.RecordID {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []job.RecordID
	for _, l := range f.delivered {
		out = append(out, l.Record)
	}
	slices.Sort(out)
	return out
}

func (f *fakeSlots) list(which *[]string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(*which)
}
