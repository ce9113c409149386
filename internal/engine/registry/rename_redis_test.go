package registry_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/auth/payloadkeys"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/engine/ledger"
	"github.com/fermata-io/fermata/internal/engine/registry"
	"github.com/fermata-io/fermata/internal/redis/fsck"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/keytest"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// steppedStore is the store of a process that may die at a step of a rename.
type steppedStore struct {
	*redisstore.Store
	steps int
	// dieAt is the step at which the process dies; 0: it lives. Lost: the step is made, but its reply is lost.
	dieAt int
	lost  bool
	// meddle is what others do before a step.
	meddle func(step int)
}

var errDied = fmt.Errorf("%w: the process has died", job.ErrUnavailable)

func (s *steppedStore) step(do func() error) error {
	s.steps++
	dies := s.dieAt > 0 && s.steps >= s.dieAt
	if dies && (!s.lost || s.steps > s.dieAt) {
		return errDied
	}
	if s.meddle != nil {
		s.meddle(s.steps)
	}
	err := do()
	if dies {
		return errDied
	}
	return err
}

func (s *steppedStore) ReserveName(ctx context.Context, r job.Rename, like *job.Record, now unixtime.Milli) (h job.RenameHandle,
	code job.CreateCode, err error) {
	err = s.step(func() (err error) { h, code, err = s.Store.ReserveName(ctx, r, like, now); return err })
	return h, code, err
}

func (s *steppedStore) TakeJob(ctx context.Context, kept *job.KeptJob, now unixtime.Milli) (taken bool, err error) {
	err = s.step(func() (err error) { taken, err = s.Store.TakeJob(ctx, kept, now); return err })
	return taken && err == nil, err
}

func (s *steppedStore) StoreRenamed(ctx context.Context, h job.RenameHandle, as *job.StoredJob,
	now unixtime.Milli) (stored bool, reply job.CreateReply, err error) {
	err = s.step(func() (err error) { stored, reply, err = s.Store.StoreRenamed(ctx, h, as, now); return err })
	return stored, reply, err
}

func (s *steppedStore) ReturnKept(ctx context.Context, kept *job.KeptJob) (stored bool, reply job.CreateReply, err error) {
	err = s.step(func() (err error) { stored, reply, err = s.Store.ReturnKept(ctx, kept); return err })
	return stored, reply, err
}

func (s *steppedStore) AbortRename(ctx context.Context, h job.RenameHandle, like job.Lane, now unixtime.Milli) (done bool, err error) {
	err = s.step(func() (err error) { done, err = s.Store.AbortRename(ctx, h, like, now); return err })
	return done, err
}

func (s *steppedStore) ReleaseName(ctx context.Context, kept *job.KeptJob) error {
	return s.step(func() error { return s.Store.ReleaseName(ctx, kept) })
}

func (s *steppedStore) ForgetRename(ctx context.Context, h job.RenameHandle) error {
	return s.step(func() error { return s.Store.ForgetRename(ctx, h) })
}

// renameRig is a registry on a Redis whose clock the test moves.
type renameRig struct {
	*rig
	t     *testing.T
	clock *atomic.Int64
}

func newRenameRig(t *testing.T) *renameRig {
	t.Helper()
	clock := new(atomic.Int64)
	clock.Store(1_800_000_000_000)
	base := rigOn(t, redistest.Start(t), func(o *redisstore.Options) {
		o.Virtual = func() unixtime.Milli { return unixtime.Milli(clock.Load()) }
		o.KeepEvents = redisstore.MinKeepEvents
	})
	return &renameRig{rig: withRevisions(t, base, 3), t: t, clock: clock}
}

// through is a registry of another process.
func (r *renameRig) through(s registry.Store) *registry.Registry {
	r.t.Helper()
	book := ledger.New(ledger.Options{Store: r.store, Observer: quiet{}, Nudger: quiet{}, Revisions: 3})
	r.t.Cleanup(book.Stop)
	reg, err := registry.NewUnhurried(registry.Options{Store: s, SharedLimits: r.store.Limits(), Ledger: book, Revisions: 3})
	if err != nil {
		r.t.Fatal(err)
	}
	return reg
}

func (r *renameRig) advance(d time.Duration) { r.clock.Add(d.Milliseconds()) }

func keyOf(id string) job.Key { return job.Key{Namespace: "default", ID: id} }

// addFailing registers a job that has a history, a dead letter, a failure, an earlier revision and a pause.
func (r *renameRig) addFailing(id string) job.Record {
	r.t.Helper()
	d := jobOf(id)
	d.Retry.MaxAttempts = 1
	if _, err := r.Create(r.t.Context(), d, ""); err != nil {
		r.t.Fatal(err)
	}
	for _, outcome := range []job.Outcome{job.OutcomeSucceeded, job.OutcomeFailed} {
		r.advance(time.Hour)
		r.finish(keyOf(id), outcome)
	}
	r.edit(r.t, keyOf(id), "ops", func(d *job.Definition) { d.Timeout = 77 * time.Second })
	record, err := r.Pause(r.t.Context(), keyOf(id), "for now")
	if err != nil {
		r.t.Fatal(err)
	}
	return record
}

// finish leases the run of a job that is due and ends it.
func (r *renameRig) finish(key job.Key, outcome job.Outcome) {
	r.t.Helper()
	leased := r.lease(r.t, key)
	if leased.Record != key.Record() {
		r.t.Fatalf("leased %s, want %s", leased.Record, key.Record())
	}
	result := r.book.SubmitAndWait(r.t.Context(), job.Change{Record: leased.Record,
		Input: job.FinishAttempt{Token: leased.Known.State.Token, Outcome: outcome, Error: "e", StartedMS: unixtime.Milli(r.clock.Load())}})[0]
	if result.Err != nil || result.Answer != job.Applied {
		r.t.Fatal(result)
	}
}

// partsOf are all parts of a job but for its name.
func (r *renameRig) partsOf(id string) (parts struct {
	State     job.State
	Runs      []job.RunView
	Letters   []job.CheckpointDeadLetter
	Revisions []uint32
	Timeout   time.Duration
	CreatedMS unixtime.Milli
}) {
	r.t.Helper()
	record, err := r.Get(r.t.Context(), keyOf(id))
	if err != nil {
		r.t.Fatal(err)
	}
	runs, err := r.ListRuns(r.t.Context(), keyOf(id))
	if err != nil {
		r.t.Fatal(err)
	}
	snaps, err := r.store.Snapshots(r.t.Context(), r.store.ShardOf(keyOf(id)), []job.Record{record})
	if err != nil {
		r.t.Fatal(err)
	}
	revisions, err := r.Revisions(r.t.Context(), keyOf(id))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, v := range revisions {
		parts.Revisions = append(parts.Revisions, v.Revision)
	}
	parts.State, parts.Runs, parts.Letters = record.State, runs, snaps[0].DeadLetters
	parts.State.Revision = 0
	parts.Timeout, parts.CreatedMS = record.Definition.Timeout, record.Definition.CreatedMS
	return parts
}

// wantClean fails the test if anything of a rename is left, or a shard is not consistent.
func (r *renameRig) wantClean() {
	r.t.Helper()
	for shard := range r.store.Shards() {
		report, err := fsck.New(r.store).CheckShard(r.t.Context(), shard, false)
		if err != nil || len(report.Findings) > 0 {
			r.t.Errorf("shard %d: %+v, %v", shard, report.Findings, err)
		}
		lock := r.store.LockKey(shard)
		if left := r.admin.HGetAll(r.t.Context(), lock[:len(lock)-len("lock")]+"renames").Val(); len(left) > 0 {
			r.t.Errorf("shard %d: renames are left: %v", shard, left)
		}
	}
}

// endAll has a live node end what others have left, until nothing is remembered.
func (r *renameRig) endAll() {
	r.t.Helper()
	shards := []int{0, 1, 2, 3}
	for _, wait := range []time.Duration{0, job.RenameGrace + time.Second, job.RenameMemory + time.Second} {
		r.advance(wait)
		if err := r.FinishRenames(r.t.Context(), shards); err != nil {
			r.t.Fatal(err)
		}
	}
}

// namesOf lists which of some names have a job.
func (r *renameRig) namesOf(ids ...string) (have []string) {
	r.t.Helper()
	for _, id := range ids {
		_, err := r.Get(r.t.Context(), keyOf(id))
		if err == nil {
			have = append(have, id)
		} else if !errors.Is(err, job.ErrNotFound) {
			r.t.Fatal(err)
		}
	}
	return have
}

func TestRenamedJobKeepsAllButItsName(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	for i := range 6 { // of one shard and of two
		from, to := fmt.Sprint("old-", i), fmt.Sprint("new-", i)
		before := r.addFailing(from)
		want := r.partsOf(from)
		if len(want.Letters) != 1 || len(want.Runs) < 2 || want.State.Failures != 1 || !want.State.Paused {
			t.Fatalf("%+v", want)
		}
		got, err := r.Rename(context.WithValue(t.Context(), callerOf{}, "mover"),
			job.RenameRequest{Key: keyOf(from), NewID: to, RequestID: "r", Etag: before.Definition.Etag()})
		if err != nil || got.Definition.ID != to {
			t.Fatal(got, err)
		}
		want.Revisions = append([]uint32{want.Revisions[0] + 1}, want.Revisions...)
		if have := r.partsOf(to); !reflect.DeepEqual(have, want) {
			t.Errorf("renamed\n%+v\nwas\n%+v", have, want)
		}
		if got.Definition.LastEdit.Identity != "mover" || got.Definition.Etag() == before.Definition.Etag() {
			t.Errorf("edit %+v, etag %s", got.Definition.LastEdit, got.Definition.Etag())
		}
		if have := r.namesOf(from, to); !slices.Equal(have, []string{to}) {
			t.Errorf("there are jobs %v", have)
		}
		r.wantClean()
		// The old name is free, and the job runs under its new one.
		if _, err := r.Create(t.Context(), jobOf(from), ""); err != nil {
			t.Error(err)
		}
		if err := r.Delete(t.Context(), keyOf(from), ""); err != nil {
			t.Error(err)
		}
		if _, err := r.Resume(t.Context(), keyOf(to), false); err != nil {
			t.Error(err)
		}
		r.advance(2 * time.Hour)
		r.finish(keyOf(to), job.OutcomeSucceeded)
		if err := r.Delete(t.Context(), keyOf(to), ""); err != nil {
			t.Error(err)
		}
	}
	r.endAll()
	r.wantClean()
}

func TestRenameIsRefused(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	r.addFailing("paused")
	for _, id := range []string{"taken", "live", "beside"} {
		if _, err := r.Create(t.Context(), jobOf(id), ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := r.RunJob(t.Context(), keyOf("live"), job.RequestManualRun{RequestID: "m"}); err != nil {
		t.Fatal(err)
	}
	leased := r.lease(t, keyOf("live"))
	if _, _, err := r.RunJob(t.Context(), keyOf("beside"), job.RequestManualRun{RequestID: "m", Mode: job.ManualKeep}); err != nil {
		t.Fatal(err)
	}
	var exists *job.ExistsError
	var missing *job.MissingError
	var invalid *job.InvalidError
	var etag *job.EtagError
	var unfit *job.PreconditionError
	for _, c := range []struct {
		q    job.RenameRequest
		want any
	}{
		{job.RenameRequest{Key: keyOf("paused"), NewID: "taken"}, &exists},
		{job.RenameRequest{Key: keyOf("none"), NewID: "new"}, &missing},
		{job.RenameRequest{Key: keyOf("paused"), NewID: "paused"}, &invalid},
		{job.RenameRequest{Key: keyOf("paused"), NewID: "a b"}, &invalid},
		{job.RenameRequest{Key: keyOf("paused"), NewID: "new", Etag: "x-1"}, &etag},
		{job.RenameRequest{Key: keyOf("live"), NewID: "new"}, &unfit},
		{job.RenameRequest{Key: keyOf("beside"), NewID: "new"}, &unfit},
	} {
		if _, err := r.Rename(t.Context(), c.q); !errors.As(err, c.want) {
			t.Errorf("%+v: %v", c.q, err)
		}
	}
	if have := r.namesOf("paused", "taken", "live", "beside", "new"); len(have) != 4 {
		t.Errorf("there are jobs %v", have)
	}
	// The live run goes on.
	if result := r.book.SubmitAndWait(t.Context(), job.Change{Record: leased.Record,
		Input: job.FinishAttempt{Token: leased.Known.State.Token, Outcome: job.OutcomeSucceeded}})[0]; result.Answer != job.Applied {
		t.Error(result)
	}
}

func TestRepeatedRenameHasNoSecondEffect(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	r.addFailing("old")
	q := job.RenameRequest{Key: keyOf("old"), NewID: "new", RequestID: "r1"}
	first, err := r.Rename(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create(t.Context(), jobOf("old"), ""); err != nil { // another one takes the old name
		t.Fatal(err)
	}
	again, err := r.Rename(t.Context(), q)
	if err != nil || again.Definition.Etag() != first.Definition.Etag() {
		t.Error(again, err)
	}
	q.RequestID = "r2"
	var exists *job.ExistsError
	if _, err := r.Rename(t.Context(), q); !errors.As(err, &exists) {
		t.Error(err)
	}
}

// TestRepeatedRenameOfAJobThatHasItsNameAgain: a late copy of a rename does not rename the job a second time.
func TestRepeatedRenameOfAJobThatHasItsNameAgain(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	r.addFailing("a")
	first := job.RenameRequest{Key: keyOf("a"), NewID: "b", RequestID: "r1"}
	for _, q := range []job.RenameRequest{first, {Key: keyOf("b"), NewID: "a", RequestID: "r2"}} {
		if _, err := r.Rename(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	var unfit *job.PreconditionError
	if _, err := r.Rename(t.Context(), first); !errors.As(err, &unfit) || unfit.Reason != job.ReasonRenamedBefore {
		t.Errorf("repeated: %v", err)
	}
	if have := r.namesOf("a", "b"); !slices.Equal(have, []string{"a"}) {
		t.Errorf("there are jobs %v", have)
	}
	first.RequestID = "r3"
	if _, err := r.Rename(t.Context(), first); err != nil {
		t.Errorf("another request: %v", err)
	}
}

// TestRefusedRenamesLeaveNothing: what refuses a rename does so before anything is stored, and an abort is not
// remembered if no call that takes the job was sent.
func TestRefusedRenamesLeaveNothing(t *testing.T) {
	s := newSealing(t)
	r := withRevisions(t, s.plain, 3, func(o *registry.Options) { o.Sealer = s.ring })
	key := put(t, r, "sealed", "secret")
	store := &steppedStore{Store: s.plain.store}
	without := withRevisions(t, s.plain, 3, func(o *registry.Options) { o.Store = store })
	var unfit *job.PreconditionError
	if _, err := without.Rename(t.Context(), job.RenameRequest{Key: key, NewID: "renamed"}); !errors.As(err, &unfit) {
		t.Error(err)
	}
	if store.steps != 0 {
		t.Errorf("%d steps were taken", store.steps)
	}
	// The caller goes before the job is taken.
	ctx, cancel := context.WithCancel(t.Context())
	gone := &steppedStore{Store: s.plain.store}
	leaving := withRevisions(t, s.plain, 3, func(o *registry.Options) {
		o.Store, o.Sealer = &leavingStore{gone, cancel}, s.ring
	})
	if _, err := leaving.Rename(ctx, job.RenameRequest{Key: key, NewID: "renamed"}); err == nil {
		t.Error("it was renamed")
	}
	kept, named, err := s.plain.store.ListRenames(t.Context(), []int{0, 1, 2, 3})
	if err != nil || len(kept)+len(named) > 0 {
		t.Errorf("entries are left: %v, %v, %v", kept, named, err)
	}
}

// leavingStore is the store of a call whose caller goes when the name is reserved.
type leavingStore struct {
	*steppedStore
	leave func()
}

func (s *leavingStore) ReserveName(ctx context.Context, r job.Rename, like *job.Record, now unixtime.Milli) (job.RenameHandle,
	job.CreateCode, error) {
	h, code, err := s.steppedStore.ReserveName(ctx, r, like, now)
	s.leave()
	return h, code, err
}

// countingStore counts the reads of single renames.
type countingStore struct {
	*redisstore.Store
	reads int
}

func (s *countingStore) FindRename(ctx context.Context, end job.RenameEnd) (job.RenameHandle, error) {
	s.reads++
	return s.Store.FindRename(ctx, end)
}

// TestRememberedRenamesAreNotReadEachTime: the entry of an aborted rename is read when it is to be removed.
func TestRememberedRenamesAreNotReadEachTime(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	r.addFailing("old")
	dying := &steppedStore{Store: r.store, dieAt: 2}
	if _, err := r.through(dying).Rename(t.Context(), job.RenameRequest{Key: keyOf("old"), NewID: "new"}); err == nil {
		t.Fatal("it did not die")
	}
	// The name is reserved, and a call that needs it says so.
	var busy *job.BusyError
	if _, err := r.Create(t.Context(), jobOf("new"), ""); !errors.As(err, &busy) || !busy.Renaming {
		t.Errorf("create: %v", err)
	}
	if _, err := r.Rename(t.Context(), job.RenameRequest{Key: keyOf("old"), NewID: "new"}); !errors.As(err, &busy) ||
		!strings.Contains(err.Error(), "reserved for a rename") {
		t.Errorf("rename: %v", err)
	}
	shards, store := []int{0, 1, 2, 3}, &countingStore{Store: r.store}
	node := r.through(store)
	for _, c := range []struct {
		wait  time.Duration
		reads int
	}{{job.RenameGrace + time.Second, 1}, {time.Second, 1}, {job.RenameMemory / 2, 1}, {job.RenameMemory, 2}, {time.Second, 2}} {
		r.advance(c.wait)
		if err := node.FinishRenames(t.Context(), shards); err != nil || store.reads != c.reads {
			t.Errorf("%v later: %d reads, want %d; %v", c.wait, store.reads, c.reads, err)
		}
	}
	r.wantClean()
}

// TestRenameSurvivesACrashAtEachStep: the process of a rename dies before each of its steps, and after each one, before it
// has the reply. The job keeps all that it has under one name, and a repetition of the call ends the rename.
func TestRenameSurvivesACrashAtEachStep(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	ended := 0
	for dieAt := 1; dieAt <= 5; dieAt++ {
		for _, lost := range []bool{false, true} {
			for _, repeats := range []bool{false, true} {
				from, to := fmt.Sprintf("old-%d-%v-%v", dieAt, lost, repeats), fmt.Sprintf("new-%d-%v-%v", dieAt, lost, repeats)
				r.addFailing(from)
				want := r.partsOf(from)
				q := job.RenameRequest{Key: keyOf(from), NewID: to, RequestID: "r"}
				dying := &steppedStore{Store: r.store, dieAt: dieAt, lost: lost}
				_, err := r.through(dying).Rename(t.Context(), q)
				if err != nil && !errors.Is(err, job.ErrUnavailable) {
					t.Fatalf("%s: %v", from, err)
				}
				if dying.steps < dieAt {
					t.Fatalf("a rename has only %d steps", dying.steps)
				}
				if !repeats {
					r.endAll()
				}
				if have := r.namesOf(from, to); len(have) != 1 {
					t.Fatalf("%s: there are jobs %v", from, have)
				}
				// A reservation without a caller lasts for a while.
				for range 2 {
					if _, err = r.Rename(t.Context(), q); err == nil {
						break
					}
					var busy *job.BusyError
					if !errors.As(err, &busy) {
						t.Fatalf("%s: %v", from, err)
					}
					r.endAll()
				}
				if err != nil {
					t.Fatalf("%s: %v", from, err)
				}
				if have := r.namesOf(from, to); !slices.Equal(have, []string{to}) {
					t.Fatalf("%s: there are jobs %v", from, have)
				}
				want.Revisions = append([]uint32{want.Revisions[0] + 1}, want.Revisions...)
				if have := r.partsOf(to); !reflect.DeepEqual(have, want) {
					t.Errorf("%s: renamed\n%+v\nwas\n%+v", from, have, want)
				}
				r.endAll()
				r.wantClean()
				if err := r.Delete(t.Context(), keyOf(to), ""); err != nil {
					t.Fatal(err)
				}
				ended++
			}
		}
	}
	if ended != 20 {
		t.Errorf("%d renames", ended)
	}
}

// TestRenameAmidOtherCalls: before each step of a rename, others do something with one of its names. There is one job in
// the end, unless it was deleted, with what was done to it.
func TestRenameAmidOtherCalls(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	acts := map[string]func(from, to string) error{
		"lease": func(from, _ string) error {
			if len(r.namesOf(from)) == 0 {
				return nil
			}
			leased := r.lease(t, keyOf(from))
			if leased.Record != keyOf(from).Record() {
				return fmt.Errorf("leased %s", leased.Record)
			}
			return nil
		},
		"edit": func(from, _ string) error {
			_, err := r.Update(t.Context(), job.UpdateRequest{Key: keyOf(from),
				Merge: func(d job.Definition) (job.Definition, error) { d.Timeout = 99 * time.Second; return d, nil }})
			return err
		},
		"pause":  func(from, _ string) error { _, err := r.Pause(t.Context(), keyOf(from), "n"); return err },
		"delete": func(from, _ string) error { return r.Delete(t.Context(), keyOf(from), "") },
		"run": func(from, _ string) error {
			_, _, err := r.RunJob(t.Context(), keyOf(from), job.RequestManualRun{RequestID: "m"})
			return err
		},
		"create": func(_, to string) error {
			d := jobOf(to)
			d.Handler = "another"
			_, err := r.Create(t.Context(), d, "")
			return err
		},
		"rename to the same name": func(_, to string) error {
			_, err := r.Rename(t.Context(), job.RenameRequest{Key: keyOf("rival"), NewID: to})
			return err
		},
		"rename to another name": func(from, _ string) error {
			_, err := r.Rename(t.Context(), job.RenameRequest{Key: keyOf(from), NewID: "third"})
			return err
		},
		"rename back": func(from, to string) error {
			_, err := r.Rename(t.Context(), job.RenameRequest{Key: keyOf(to), NewID: from})
			return err
		},
		"finish": func(string, string) error { return r.FinishRenames(t.Context(), []int{0, 1, 2, 3}) },
		"finish late": func(string, string) error {
			r.advance(job.RenameGrace + time.Second)
			return r.FinishRenames(t.Context(), []int{0, 1, 2, 3})
		},
	}
	for name, act := range acts {
		for at := 1; at <= 5; at++ {
			what := fmt.Sprintf("%s before step %d", name, at)
			from, to := "from", "to"
			for _, id := range []string{from, "rival"} {
				if _, err := r.Create(t.Context(), jobOf(id), ""); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			r.advance(2 * time.Minute)
			created := r.partsOf(from).CreatedMS
			var actErr error
			acted := false
			store := &steppedStore{Store: r.store, meddle: func(step int) {
				if step == at && !acted {
					acted = true
					actErr = act(from, to)
				}
			}}
			_, err := r.through(store).Rename(t.Context(), job.RenameRequest{Key: keyOf(from), NewID: to,
				RequestID: fmt.Sprint("r", at, "-", strings.ReplaceAll(name, " ", "-"))})
			r.endAll()
			same := 0
			for _, id := range r.namesOf(from, to, "third", "rival") {
				record, err := r.Get(t.Context(), keyOf(id))
				if err == nil && id != "rival" && record.Definition.Handler != "another" && record.Definition.CreatedMS == created {
					same++
				}
			}
			wantJobs := 1
			if name == "rename to the same name" && actErr == nil {
				wantJobs = 2 // the rival was created at the same time
			}
			if name == "delete" && actErr == nil && acted {
				wantJobs = 0
			}
			if same != wantJobs {
				t.Errorf("%s: %d jobs, want %d; rename %v, other call %v", what, same, wantJobs, err, actErr)
			}
			r.wantClean()
			for _, id := range r.namesOf(from, to, "third", "rival") {
				if record, _ := r.Get(t.Context(), keyOf(id)); record.State.Live() {
					result := r.book.SubmitAndWait(t.Context(), job.Change{Record: keyOf(id).Record(),
						Input: job.FinishAttempt{Token: record.State.Token, Outcome: job.OutcomeSucceeded}})[0]
					if result.Answer != job.Applied {
						t.Errorf("%s: the live run of %s does not end: %+v", what, id, result)
					}
				}
				if err := r.Delete(t.Context(), keyOf(id), ""); err != nil {
					t.Fatalf("%s: delete %s: %v", what, id, err)
				}
			}
			r.wantClean()
		}
	}
}

// TestNamesOfLostRenamesAreFreed: a failover may lose what a shard knows of a rename. The check of the shard finds the name
// that is kept for it, and a repair frees it.
func TestNamesOfLostRenamesAreFreed(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	r.addFailing("old")
	dying := &steppedStore{Store: r.store, dieAt: 3}
	if _, err := r.through(dying).Rename(t.Context(), job.RenameRequest{Key: keyOf("old"), NewID: "new"}); err == nil {
		t.Fatal("it did not die")
	}
	for shard := range r.store.Shards() {
		lock := r.store.LockKey(shard)
		r.admin.Del(t.Context(), lock[:len(lock)-len("lock")]+"renames")
	}
	for _, repair := range []bool{false, true} {
		found := 0
		for shard := range r.store.Shards() {
			report, err := fsck.New(r.store).CheckShard(t.Context(), shard, repair)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range report.Findings {
				if f.Fault != job.FaultState || f.Repaired != repair {
					t.Errorf("%+v", f)
				}
				found++
			}
		}
		if found != 2 {
			t.Errorf("%d findings, want both names", found)
		}
	}
	r.wantClean()
	for _, id := range []string{"old", "new"} {
		if _, err := r.Create(t.Context(), jobOf(id), ""); err != nil {
			t.Errorf("%s is not free: %v", id, err)
		}
	}
}

// TestTokensGrowAcrossARename: the shard of the old name has given greater tokens than the clock of the other one shows.
func TestTokensGrowAcrossARename(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	from, to := "old", "new"
	for i := 0; r.store.ShardOf(keyOf(from)) == r.store.ShardOf(keyOf(to)); i++ {
		to = fmt.Sprint("new-", i)
	}
	if _, err := r.Create(t.Context(), jobOf(from), ""); err != nil {
		t.Fatal(err)
	}
	lock := r.store.LockKey(r.store.ShardOf(keyOf(from)))
	meta := lock[:len(lock)-len("lock")] + "meta"
	clock := r.admin.HGet(t.Context(), meta, "c").Val()
	ahead := fmt.Sprintf("%016d", (r.clock.Load()+10*time.Hour.Milliseconds())*1000)
	r.admin.HSet(t.Context(), meta, "c", clock[:48]+ahead+clock[64:])
	r.advance(2 * time.Minute)
	r.finish(keyOf(from), job.OutcomeSucceeded)
	before, err := r.Get(t.Context(), keyOf(from))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Rename(t.Context(), job.RenameRequest{Key: keyOf(from), NewID: to}); err != nil {
		t.Fatal(err)
	}
	r.advance(2 * time.Minute)
	if leased := r.lease(t, keyOf(to)); leased.Known.State.Token <= before.State.Token || before.State.Token == 0 {
		t.Errorf("token %d, after %d under the old name", leased.Known.State.Token, before.State.Token)
	}
}

// TestSealedPayloadsAreRenamed: payloads are sealed under the new name, also those of revisions; without the key the job
// stays as it is.
func TestSealedPayloadsAreRenamed(t *testing.T) {
	s := newSealing(t)
	r := withRevisions(t, s.plain, 3, func(o *registry.Options) { o.Sealer = s.ring })
	key := put(t, r, "sealed", "first")
	r.edit(t, key, "", func(d *job.Definition) { d.Payload, d.PayloadKey = []byte("second"), "" })
	without := withRevisions(t, s.plain, 3)
	q := job.RenameRequest{Key: key, NewID: "renamed"}
	var unfit *job.PreconditionError
	if _, err := without.Rename(t.Context(), q); !errors.As(err, &unfit) || unfit.Reason != job.ReasonPayloadUnreadable {
		t.Fatalf("without keys: %v", err)
	}
	got, err := r.Rename(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	revisions, err := r.Revisions(t.Context(), got.Definition.Key)
	if err != nil || len(revisions) != 3 {
		t.Fatalf("%d revisions: %v", len(revisions), err)
	}
	for i, want := range []string{"second", "second", "first"} {
		if payload, err := s.ring.Decrypt(revisions[i].Definition); err != nil || string(payload) != want {
			t.Errorf("payload %d is %q, %v; want %q", i, payload, err, want)
		}
	}
}

// TestSealedDeadLettersAreRenamed: dead letters with sealed payloads of their own are exported, redriven and delivered
// under the new name, also if another node ends the rename.
func TestSealedDeadLettersAreRenamed(t *testing.T) {
	s := newSealing(t)
	seals := func(o *registry.Options) { o.Sealer = s.ring }
	r := withRevisions(t, s.plain, 3, seals)
	for _, dieAt := range []int{0, 3, 4} {
		d := owned(fmt.Sprint("sealed-", dieAt), "x")
		d.Payload, d.Retry.MaxAttempts = []byte("job's"), 1
		if _, err := r.Create(t.Context(), d, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := r.RunJobWithPayload(t.Context(), d.Key, withPayload("a", "secret")); err != nil {
			t.Fatal(err)
		}
		leased := r.lease(t, d.Key)
		result := r.book.SubmitAndWait(t.Context(), job.Change{Record: leased.Record, Input: job.FinishAttempt{
			Token: leased.Known.State.Token, Outcome: job.OutcomeFailed, StartedMS: unixtime.Milli(time.Now().UnixMilli())}})[0]
		if result.Err != nil || result.Answer != job.Applied {
			t.Fatal(result)
		}
		caller := withRevisions(t, s.plain, 3, seals, func(o *registry.Options) {
			o.Store = &steppedStore{Store: s.plain.store, dieAt: dieAt}
		})
		q := job.RenameRequest{Key: d.Key, NewID: "renamed-" + d.ID}
		if _, err := caller.Rename(t.Context(), q); (err != nil) != (dieAt > 0) {
			t.Fatal(dieAt, err)
		}
		if err := r.FinishRenames(t.Context(), []int{0, 1, 2, 3}); err != nil {
			t.Fatal(err)
		}
		to := q.NewKey()
		for shard := range r.store.Shards() {
			if report, err := fsck.New(r.store).CheckShard(t.Context(), shard, false); err != nil || len(report.Findings) > 0 {
				t.Errorf("%s: %+v, %v", d.ID, report.Findings, err)
			}
		}
		page, err := r.ExportJobs(t.Context(), job.Filter{Namespace: to.Namespace, IDPrefix: to.ID}, 0, "")
		if err != nil || len(page.Backups) != 1 || len(page.Backups[0].Checkpoint.DeadLetters) != 1 {
			t.Fatalf("%s: %+v, %v", d.ID, page, err)
		}
		bulk, err := r.RedriveDeadLetters(t.Context(), job.RedriveRequest{Filter: job.Filter{Namespace: to.Namespace},
			Records: []job.RecordID{to.Record().Letter(0)}})
		if err != nil || bulk.Done != 1 {
			t.Fatalf("%s: %+v, %v", d.ID, bulk, err)
		}
		leased = r.lease(t, to)
		if leased.Own == nil {
			t.Fatalf("%s: it runs with the payload of the job", d.ID)
		}
		if payload, err := s.ring.Decrypt(leased.Own.ApplyTo(leased.Known.Definition)); err != nil || string(payload) != "secret" {
			t.Errorf("%s: it runs with %q, %v", d.ID, payload, err)
		}
		result = r.book.SubmitAndWait(t.Context(), job.Change{Record: leased.Record, Input: job.FinishAttempt{
			Token: leased.Known.State.Token, Outcome: job.OutcomeSucceeded}})[0]
		if result.Err != nil || result.Answer != job.Applied {
			t.Fatal(result)
		}
	}
}

// sealing has the registries of a rig seal payloads.
func (r *renameRig) sealing() (*rig, *payloadkeys.Ring) {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "keys")
	text := "k1 " + base64.StdEncoding.EncodeToString(keytest.Key("one")) + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	ring, err := payloadkeys.Load(path, payloadkeys.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	ring.UseVersion2()
	return withRevisions(r.t, r.rig, 3, func(o *registry.Options) { o.Sealer = ring }), ring
}

// leaveTaken has the process of a caller die when the job is taken, and returns the kept job.
func (r *renameRig) leaveTaken(ring *payloadkeys.Ring, q job.RenameRequest) *job.KeptJob {
	r.t.Helper()
	caller := withRevisions(r.t, r.rig, 3, func(o *registry.Options) {
		o.Sealer, o.Store = ring, &steppedStore{Store: r.store, dieAt: 3}
	})
	if _, err := caller.Rename(r.t.Context(), q); !errors.Is(err, errDied) {
		r.t.Fatal(err)
	}
	ends, _, err := r.store.ListRenames(r.t.Context(), []int{r.store.ShardOf(q.Key)})
	if err != nil || len(ends) != 1 {
		r.t.Fatal(ends, err)
	}
	kept, err := r.store.ReadKept(r.t.Context(), ends[0].Shard, ends[0].ID)
	if err != nil || kept == nil {
		r.t.Fatal(kept, err)
	}
	return kept
}

// TestRenamesOfSealedJobsEndInTime: a job whose payload is sealed, and that was taken long ago, returns to its old name
// with all that it has. Until then, and without a sealed payload at any time, it gets its new name.
func TestRenamesOfSealedJobsEndInTime(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	plain := r.rig
	sealing, ring := r.sealing()
	r.rig = sealing
	for _, c := range []struct {
		payload string
		age     time.Duration
		renamed bool
	}{
		{"sealed", job.RenameMemory - time.Minute, true}, {"sealed", job.RenameMemory + time.Second, false},
		{"", job.RenameMemory + time.Second, true}, {"", 24 * time.Hour, true},
	} {
		from, to := fmt.Sprintf("old%s-%v", c.payload, c.age), fmt.Sprintf("new%s-%v", c.payload, c.age)
		if c.payload == "" {
			put(t, plain, from, "plain")
		} else {
			put(t, sealing, from, c.payload)
		}
		kept := r.leaveTaken(ring, job.RenameRequest{Key: keyOf(from), NewID: to})
		if kept.HasSealedPayload() != (c.payload != "") {
			t.Fatalf("%s has a sealed payload: %v", from, kept.HasSealedPayload())
		}
		r.advance(c.age)
		if err := r.FinishRenames(t.Context(), []int{0, 1, 2, 3}); err != nil {
			t.Fatal(err)
		}
		want := from
		if c.renamed {
			want = to
		}
		if have := r.namesOf(from, to); !slices.Equal(have, []string{want}) {
			t.Fatalf("after %v there are jobs %v, want %v", c.age, have, want)
		}
		record, err := r.Get(t.Context(), keyOf(want))
		if err != nil {
			t.Fatal(err)
		}
		if payload, err := ring.Decrypt(record.Definition); c.payload != "" && (err != nil || string(payload) != c.payload) {
			t.Errorf("%s has the payload %q, %v", want, payload, err)
		}
		r.endAll()
		r.wantClean()
	}
}

// TestKeptJobsCannotBeReplayed: whoever can write to Redis keeps the job of a rename that was aborted, and leaves it again
// when the rename is forgotten, as it was or with the present time. No node seals its payload for the other name.
func TestKeptJobsCannotBeReplayed(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	node, ring := r.sealing()
	r.rig = node
	put(t, node, "secret", "of the secret")
	kept := r.leaveTaken(ring, job.RenameRequest{Key: keyOf("secret"), NewID: "other"})
	h, err := r.store.ReadRename(t.Context(), kept.Rename)
	if err == nil {
		_, err = r.store.AbortRename(t.Context(), h, h.Lane, unixtime.Milli(r.clock.Load()))
	}
	if err != nil {
		t.Fatal(err)
	}
	r.endAll()
	if have := r.namesOf("secret", "other"); !slices.Equal(have, []string{"secret"}) {
		t.Fatal(have)
	}
	began := kept.AtMS
	replay := func() {
		t.Helper()
		stored, err := r.store.ReadStoredJob(t.Context(), kept.From)
		if err != nil {
			t.Fatal(err)
		}
		kept.Job = *stored
		now := unixtime.Milli(r.clock.Load())
		_, code, err := r.store.ReserveName(t.Context(), kept.Rename, &stored.Records[0].Record, now)
		if err != nil || code != job.Created {
			t.Fatal(code, err)
		}
		if taken, err := r.store.TakeJob(t.Context(), kept, now); err != nil || !taken {
			t.Fatal(taken, err)
		}
	}
	replay()
	if have := r.namesOf("secret", "other"); !slices.Equal(have, []string{"secret"}) {
		t.Fatalf("a replayed rename left %v", have)
	}
	r.endAll()
	kept.AtMS = unixtime.Milli(r.clock.Load())
	replay()
	var unfit *job.PreconditionError
	if _, err := r.Get(t.Context(), kept.To); !errors.As(err, &unfit) || unfit.Reason != job.ReasonPayloadUnreadable {
		t.Errorf("with a signature of %v at %v: %v", began, kept.AtMS, err)
	}
}

// TestUnreadableDeadLetterIsNamed in the error of a rename that it prevents.
func TestUnreadableDeadLetterIsNamed(t *testing.T) {
	s := newSealing(t)
	d := owned("unsealed", "x")
	d.Retry.MaxAttempts = 1
	sealing := withRevisions(t, s.plain, 3, func(o *registry.Options) { o.Sealer = s.ring })
	if _, err := s.plain.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := sealing.RunJobWithPayload(t.Context(), d.Key, withPayload("a", "secret")); err != nil {
		t.Fatal(err)
	}
	leased := sealing.lease(t, d.Key)
	sealing.book.SubmitAndWait(t.Context(), job.Change{Record: leased.Record,
		Input: job.FinishAttempt{Token: leased.Known.State.Token, Outcome: job.OutcomeFailed}})
	_, err := withRevisions(t, s.plain, 3).Rename(t.Context(), job.RenameRequest{Key: d.Key, NewID: "renamed"})
	var unfit *job.PreconditionError
	if !errors.As(err, &unfit) || unfit.Reason != job.ReasonPayloadUnreadable ||
		!strings.Contains(unfit.Text, "deadLetters/0") || !strings.Contains(unfit.Text, "discard") {
		t.Errorf("rename: %v", err)
	}
}

// TestRenamesThatOthersMayEndAreNoted: a call that fails after its job was taken is noted as one that has stored
// something, because another node ends the rename. One that fails before is not.
func TestRenamesThatOthersMayEndAreNoted(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	for dieAt, want := range map[int]int{1: 0, 2: 0, 3: 1} {
		from, to := fmt.Sprint("old-", dieAt), fmt.Sprint("new-", dieAt)
		if _, err := r.Create(t.Context(), jobOf(from), ""); err != nil {
			t.Fatal(err)
		}
		noted := 0
		node, err := registry.NewUnhurried(registry.Options{Store: &steppedStore{Store: r.store, dieAt: dieAt},
			SharedLimits: r.store.Limits(), Ledger: r.book, NoteStored: func(context.Context, []job.BulkTarget) { noted++ }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := node.Rename(t.Context(), job.RenameRequest{Key: keyOf(from), NewID: to}); !errors.Is(err, errDied) {
			t.Errorf("at step %d: %v", dieAt, err)
		}
		if noted != want {
			t.Errorf("at step %d: noted %d times, want %d", dieAt, noted, want)
		}
		r.endAll()
		wantName := from
		if want > 0 {
			wantName = to
		}
		if have := r.namesOf(from, to); !slices.Equal(have, []string{wantName}) {
			t.Errorf("at step %d: there are %v in the end", dieAt, have)
		}
	}
}

// TestAbortedRenameReturnsTheJob: somebody aborts a rename after its job was taken. The call that would store it does
// nothing, and the job returns to its old name, also if the process dies before or after that.
func TestAbortedRenameReturnsTheJob(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	for _, c := range []struct {
		dieAt int
		lost  bool
	}{{0, false}, {4, false}, {4, true}} {
		from, to := fmt.Sprintf("old-%+v", c.dieAt), fmt.Sprintf("new-%v-%v", c.dieAt, c.lost)
		r.addFailing(from)
		want := r.partsOf(from)
		store := &steppedStore{Store: r.store, dieAt: c.dieAt, lost: c.lost}
		store.meddle = func(step int) {
			if step != 3 {
				return
			}
			for shard := range r.store.Shards() {
				_, named, err := r.store.ListRenames(t.Context(), []int{shard})
				if err != nil {
					t.Fatal(err)
				}
				for _, end := range named {
					h, err := r.store.FindRename(t.Context(), end)
					if err != nil || h.Phase != job.RenameReserved {
						continue // an earlier case's
					}
					if done, err := r.store.AbortRename(t.Context(), h, h.Lane, unixtime.Milli(r.clock.Load())); err != nil || !done {
						t.Fatal(done, err)
					}
				}
			}
		}
		_, err := r.through(store).Rename(t.Context(), job.RenameRequest{Key: keyOf(from), NewID: to, RequestID: "r"})
		if err == nil {
			t.Fatal("an aborted rename was successful")
		}
		if have := r.namesOf(from, to); !slices.Equal(have, []string{from}) {
			t.Fatalf("there are jobs %v after %v", have, err)
		}
		if have := r.partsOf(from); !reflect.DeepEqual(have, want) {
			t.Errorf("returned\n%+v\nwas\n%+v", have, want)
		}
		r.endAll()
		r.wantClean()
		if err := r.Delete(t.Context(), keyOf(from), ""); err != nil {
			t.Fatal(err)
		}
	}
}
