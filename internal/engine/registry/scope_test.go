package registry_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/engine/ledger"
	"github.com/fermata-io/fermata/internal/engine/registry"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
)

// meddling is a store in which somebody else acts between a look at a record and the write.
type meddling struct {
	*redisstore.Store
	before atomic.Pointer[func()]
}

func (m *meddling) Apply(ctx context.Context, shard int, writes []job.Write) job.ApplyReply {
	if f := m.before.Swap(nil); f != nil {
		(*f)()
	}
	return m.Store.Apply(ctx, shard, writes)
}

type limitedCaller struct{}

// TestAJobThatMovesIsOutOfReach: a caller for whom there is queue mail alone asks for something
// while somebody moves the job to queue web. The job is as if it were missing, and untouched.
func TestAJobThatMovesIsOutOfReach(t *testing.T) {
	first, second := newRigs(t)
	store := &meddling{Store: first.store}
	book := ledger.New(ledger.Options{Store: store, Observer: quiet{}, Nudger: quiet{}})
	t.Cleanup(book.Stop)
	limited, err := registry.NewUnhurried(registry.Options{
		Store: first.store, SharedLimits: first.store.Limits(), Ledger: book,
		Queues: func(ctx context.Context) job.QueueScope {
			if ctx.Value(limitedCaller{}) == nil {
				return nil
			}
			return func(q job.QueueKey) bool { return q == job.QueueKey{Namespace: "default", Queue: "mail"} }
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	move := func(key job.Key, queue string) {
		t.Helper()
		_, err := second.Update(t.Context(), job.UpdateRequest{Key: key, Merge: func(d job.Definition) (job.Definition, error) {
			d.Queue = queue
			return d, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	only := func(key job.Key) job.Filter {
		return job.Filter{Namespace: "default", Queue: "mail", IDPrefix: key.ID}
	}
	none := func(b job.Bulk, err error) error {
		if err == nil && b.Done == 0 {
			return &job.MissingError{}
		}
		return err
	}
	for name, c := range map[string]struct {
		before func(context.Context, job.Key) error
		call   func(context.Context, job.Key) error
	}{
		"pause": {call: func(ctx context.Context, key job.Key) error { _, err := limited.Pause(ctx, key, ""); return err }},
		"resume": {
			before: func(ctx context.Context, key job.Key) error { _, err := second.Pause(ctx, key, ""); return err },
			call:   func(ctx context.Context, key job.Key) error { _, err := limited.Resume(ctx, key, false); return err },
		},
		"run": {call: func(ctx context.Context, key job.Key) error {
			_, _, err := limited.RunJob(ctx, key, job.RequestManualRun{RequestID: "r"})
			return err
		}},
		"cancel": {
			before: func(ctx context.Context, key job.Key) error {
				_, _, err := second.RunJob(ctx, key, job.RequestManualRun{RequestID: "r"})
				return err
			},
			call: func(ctx context.Context, key job.Key) error { _, err := limited.CancelRun(ctx, key, "m-r"); return err },
		},
		"hint": {call: func(ctx context.Context, key job.Key) error {
			_, err := limited.Hint(ctx, key, job.Hint{Source: job.HintOperator, IntervalMS: time.Hour.Milliseconds()})
			return err
		}},
		"backfill": {call: func(ctx context.Context, key job.Key) error {
			_, err := limited.Backfill(ctx, key, job.BackfillRequest{RequestID: "b", FromMS: 1_700_000_000_000, ToMS: 1_700_000_600_000, Overlap: job.OverlapBufferAll})
			return err
		}},
		"cancel backfill": {
			before: func(ctx context.Context, key job.Key) error {
				_, err := second.Backfill(ctx, key, job.BackfillRequest{RequestID: "b", FromMS: 1_700_000_000_000, ToMS: 1_700_000_600_000, Overlap: job.OverlapBufferAll})
				return err
			},
			call: func(ctx context.Context, key job.Key) error {
				_, err := limited.CancelBackfill(ctx, key, "b")
				return err
			},
		},
		"delete": {call: func(ctx context.Context, key job.Key) error { return limited.Delete(ctx, key, "") }},
		"update": {call: func(ctx context.Context, key job.Key) error {
			_, err := limited.Update(ctx, job.UpdateRequest{Key: key, Merge: func(d job.Definition) (job.Definition, error) {
				d.Priority++
				return d, nil
			}})
			return err
		}},
		"pause all": {call: func(ctx context.Context, key job.Key) error { return none(limited.PauseAll(ctx, only(key), "", "")) }},
		"resume all": {
			before: func(ctx context.Context, key job.Key) error { _, err := second.Pause(ctx, key, ""); return err },
			call: func(ctx context.Context, key job.Key) error {
				return none(limited.ResumeAll(ctx, only(key), "", false, ""))
			},
		},
		"redrive": {
			before: func(ctx context.Context, key job.Key) error {
				leased := first.lease(t, key)
				return first.book.SubmitAndWait(ctx, job.Change{Record: key.Record(), Input: job.FinishAttempt{Token: leased.Known.State.Token, Outcome: job.OutcomeFailed, Permanent: true}})[0].Err
			},
			call: func(ctx context.Context, key job.Key) error {
				return none(limited.RedriveDeadLetters(ctx, job.RedriveRequest{Filter: job.Filter{Namespace: "default"}, Records: []job.RecordID{key.Record()}}))
			},
		},
		"apply": {call: func(ctx context.Context, key job.Key) error {
			record, err := limited.Get(ctx, key)
			if err != nil {
				return err
			}
			return limited.ApplyJobs(ctx, []job.DesiredJob{{Definition: *record.Definition, Etag: record.Definition.Etag(), Pause: true}}, false)[0].Err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d := jobOf("job-" + name[:3] + name[len(name)-3:])
			d.Queue = "mail"
			if name == "redrive" {
				d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.Unix(1_700_000_000, 0)}
			}
			if _, err := second.Create(t.Context(), d, ""); err != nil {
				t.Fatal(err)
			}
			if c.before != nil {
				if err := c.before(t.Context(), d.Key); err != nil {
					t.Fatal(err)
				}
			}
			var moved job.Record
			meddle := func() {
				move(d.Key, "web")
				moved, _ = second.Get(t.Context(), d.Key)
			}
			store.before.Store(&meddle)
			err := c.call(context.WithValue(t.Context(), limitedCaller{}, true), d.Key)
			if moved.Definition == nil {
				t.Fatal("nothing was written: this proves nothing")
			}
			if !errors.Is(err, job.ErrNotFound) {
				t.Errorf("%v, want that there is no such job", err)
			}
			now, err := second.Get(t.Context(), d.Key)
			if err != nil || !reflect.DeepEqual(now.State, moved.State) || now.Definition.Etag() != moved.Definition.Etag() {
				t.Errorf("the job has changed: %v\n%+v\n%+v", err, now.State, moved.State)
			}
			// The same caller has no other way to it, and somebody else has.
			if _, err := limited.Get(context.WithValue(t.Context(), limitedCaller{}, true), d.Key); !errors.Is(err, job.ErrNotFound) {
				t.Errorf("it is shown: %v", err)
			}
			move(d.Key, "mail")
			if err := c.call(context.WithValue(t.Context(), limitedCaller{}, true), d.Key); err != nil {
				t.Errorf("back in its queue: %v", err)
			}
		})
	}
}

// limitedTo returns a registry for callers of one queue.
func (r *renameRig) limitedTo(t *testing.T, queue string) *registry.Registry {
	t.Helper()
	limited, err := registry.NewUnhurried(registry.Options{
		Store: r.store, SharedLimits: r.store.Limits(), Ledger: r.book,
		Queues: func(context.Context) job.QueueScope {
			return func(q job.QueueKey) bool { return q == job.QueueKey{Namespace: "default", Queue: queue} }
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return limited
}

// TestRunsLeaveOutDeadLettersOfOtherQueues: a dead letter stays in the queue of its run. Who may see the queue alone to
// which the job was moved since then gets neither it nor its output.
func TestRunsLeaveOutDeadLettersOfOtherQueues(t *testing.T) {
	r := newRenameRig(t)
	limited := r.limitedTo(t, "mail")
	key := job.Key{Namespace: "default", ID: "moved"}
	move := func(queue string) {
		t.Helper()
		_, err := r.Update(t.Context(), job.UpdateRequest{Key: key, Merge: func(d job.Definition) (job.Definition, error) {
			d.Queue = queue
			return d, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	run := func(requestID string) {
		t.Helper()
		r.advance(time.Hour)
		if _, _, err := r.RunJob(t.Context(), key, job.RequestManualRun{RequestID: requestID}); err != nil {
			t.Fatal(err)
		}
	}
	die := func(requestID string) {
		t.Helper()
		run(requestID)
		r.die(t, key)
	}
	dead := func(r *registry.Registry) (ids []string) {
		t.Helper()
		runs, err := r.ListRuns(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range runs {
			if v.Outcome == job.OutcomeDead {
				ids = append(ids, v.ID)
			}
		}
		slices.Sort(ids)
		return ids
	}
	d := jobOf(key.ID)
	d.Queue = "web"
	if _, err := r.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	run("good")
	r.finish(key, job.OutcomeSucceeded)
	die("in-web")
	move("mail")
	die("in-mail")
	if all, some := dead(r.Registry), dead(limited); !slices.Equal(all, []string{"m-in-mail", "m-in-web"}) ||
		!slices.Equal(some, []string{"m-in-mail"}) {
		t.Errorf("dead runs %v, for a caller of queue mail %v", all, some)
	}
	for _, call := range []func(context.Context, job.Key, string) (job.RunView, error){limited.GetRun, limited.CancelRun} {
		if v, err := call(t.Context(), key, "m-in-web"); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("the run in queue web: %+v, %v", v, err)
		}
	}
	err := limited.DiscardDeadLetter(t.Context(), key.Record().Letter(0), "m-in-web")
	if !errors.Is(err, job.ErrNotFound) {
		t.Errorf("the dead letter in queue web: %v", err)
	}
	wantRecentRuns(t, limited, key, 1, []string{"m-in-mail"})
	wantRecentRuns(t, limited, key, 2, []string{"m-in-mail", "m-good"}) // the hidden run takes no place
	wantRecentRuns(t, r.Registry, key, 3, []string{"m-in-mail", "m-in-web", "m-good"})
}

// wantRecentRuns fails the test if a list of jobs shows other runs, also where it has jobs without dead runs.
func wantRecentRuns(t *testing.T, r *registry.Registry, key job.Key, most int, want []string) {
	t.Helper()
	record, err := r.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	never := jobOf("never")
	runs, err := r.RecentRuns(t.Context(), []job.Record{{Definition: &never}, record}, most)
	if err != nil || len(runs) != 2 || len(runs[0]) != 0 {
		t.Fatalf("%v, %v", runs, err)
	}
	var ids []string
	for _, run := range runs[1] {
		ids = append(ids, run.ID)
	}
	if !slices.Equal(ids, want) {
		t.Errorf("the latest %d runs of %s are %v, want %v", most, key.ID, ids, want)
	}
}

// TestHistoriesAreReadInOnePlace checks that only history.go reads histories, because it leaves out what the caller may
// not see.
func TestHistoriesAreReadInOnePlace(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	reads, calls := regexp.MustCompile(`Store\.(Recent)?Runs\(`), 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		switch n := len(reads.FindAll(text, -1)); {
		case err != nil:
			t.Fatal(err)
		case strings.HasSuffix(file, "_test.go") || n == 0:
		case file != "history.go":
			t.Errorf("%s reads histories from the store", file)
		default:
			calls = n
		}
	}
	if calls != 2 {
		t.Errorf("history.go has %d calls of the store: this proves nothing", calls)
	}
}
