package registry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
)

// renameTo renames a job with an id of the request.
func (r *renameRig) renameTo(from, to, requestID string) {
	r.t.Helper()
	if _, err := r.Rename(r.t.Context(), job.RenameRequest{Key: keyOf(from), NewID: to, RequestID: requestID}); err != nil {
		r.t.Fatalf("%s to %s: %v", from, to, err)
	}
}

// addAnother registers another job, which no rename is to reach.
func (r *renameRig) addAnother(id string) {
	r.t.Helper()
	d := jobOf(id)
	d.Handler = "another"
	_, err := r.Create(r.t.Context(), d, "")
	if err == nil {
		_, err = r.Pause(r.t.Context(), d.Key, "no run of it is to be leased")
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// wantAnother fails the test if that job has gone.
func (r *renameRig) wantAnother(what, id string) {
	r.t.Helper()
	if record, err := r.Get(r.t.Context(), keyOf(id)); err != nil || record.Definition.Handler != "another" {
		r.t.Errorf("%s: the other job %s is %+v, %v", what, id, record.Definition, err)
	}
}

func isRenamedBefore(err error) bool {
	var unfit *job.PreconditionError
	return errors.As(err, &unfit) && unfit.Reason == job.ReasonRenamedBefore
}

// TestLateCopyOfARename: whatever has happened to the job and to its old name since, a copy of the call renames no other
// job. It is answered with the job while that has the new name.
func TestLateCopyOfARename(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	for i, c := range []struct {
		name  string
		since func(a, b, c string)
		found bool // the job has its new name
	}{
		{"nothing", func(_, _, _ string) {}, true},
		{"edited more often than ids of edits are kept", func(_, b, _ string) {
			for n := range 2 * job.MaxRecent {
				if _, err := r.Update(t.Context(), job.UpdateRequest{Key: keyOf(b), RequestID: fmt.Sprint("u", n),
					Merge: func(d job.Definition) (job.Definition, error) {
						d.Timeout = time.Duration(n+1) * time.Second
						return d, nil
					}}); err != nil {
					t.Fatal(err)
				}
			}
		}, true},
		{"renamed again", func(_, b, c string) { r.renameTo(b, c, "r2") }, false},
		{"renamed again, another job has the new name", func(_, b, c string) { r.renameTo(b, c, "r2"); r.addFailing(b) }, false},
		{"renamed there and back", func(_, b, c string) { r.renameTo(b, c, "r2"); r.renameTo(c, b, "r3") }, true},
		{"deleted", func(_, b, _ string) {
			if err := r.Delete(t.Context(), keyOf(b), ""); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"renamed back and again by another request", func(a, b, c string) {
			r.renameTo(b, a, "r2")
			r.renameTo(a, c, "r3")
		}, false},
	} {
		for _, another := range []bool{true, false} {
			suffix := fmt.Sprintf("-%d-%v", i, another)
			from, to, third := "a"+suffix, "b"+suffix, "c"+suffix
			what := fmt.Sprintf("%s, another job: %v", c.name, another)
			before := r.addFailing(from)
			q := job.RenameRequest{Key: keyOf(from), NewID: to, RequestID: "r1"}
			first, err := r.Rename(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			c.since(from, to, third)
			if another {
				r.addAnother(from)
			}
			for range 2 {
				again, err := r.Rename(t.Context(), q)
				if c.found {
					if err != nil || again.Definition.ID != to || again.Definition.CreatedMS != first.Definition.CreatedMS {
						t.Errorf("%s: %+v, %v", what, again.Definition, err)
					}
				} else if !isRenamedBefore(err) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if !another {
				continue
			}
			r.wantAnother(what, from)
			// Without an id of the request the etag refuses it.
			q.RequestID, q.Etag = "", before.Definition.Etag()
			if _, err := r.Rename(t.Context(), q); !errors.As(err, new(*job.EtagError)) && !errors.As(err, new(*job.ExistsError)) {
				t.Errorf("%s, by its etag: %v", what, err)
			}
			r.wantAnother(what, from)
			// Another request renames the other job.
			r.renameTo(from, third+"-other", "r9")
			r.wantAnother(what, third+"-other")
		}
	}
	r.endAll()
	r.wantClean()
}

// TestCopiesOfARenameAtOnce: a copy of the call stops before each of its steps, and goes on when another copy has ended,
// the job has been renamed again and another job has the old name. The other job stays, and both copies have answers
// that agree.
func TestCopiesOfARenameAtOnce(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} { // the job is renamed again in between
		for stop := 1; stop <= 5; stop++ {
			r := newRenameRig(t)
			from, to, third := "a", "b", "c"
			what := fmt.Sprintf("stopped before step %d, renamed again: %v", stop, again)
			r.addFailing(from)
			q := job.RenameRequest{Key: keyOf(from), NewID: to, RequestID: "r1"}
			var copyErr error
			stopped := false
			store := &steppedStore{Store: r.store}
			store.meddle = func(step int) {
				if step != stop || stopped {
					return
				}
				stopped = true
				var copied job.Record
				copied, copyErr = r.Rename(t.Context(), q)
				if copyErr == nil && copied.Definition.ID != to {
					t.Errorf("%s: the copy is answered with %s", what, copied.Definition.ID)
				}
				if _, err := r.Get(t.Context(), keyOf(to)); err == nil && again {
					r.renameTo(to, third, "r2")
				}
				if _, err := r.Get(t.Context(), keyOf(from)); err != nil {
					r.addAnother(from)
				}
			}
			renamed, err := r.through(store).Rename(t.Context(), q)
			switch {
			case err == nil && renamed.Definition.ID != to, err != nil && !isRenamedBefore(err) && !errors.As(err, new(*job.BusyError)):
				t.Errorf("%s: %+v, %v", what, renamed.Definition, err)
			case err != nil && copyErr != nil && stopped:
				t.Errorf("%s: both are refused: %v; %v", what, err, copyErr)
			}
			r.endAll()
			if _, err := r.Get(t.Context(), keyOf(from)); err != nil {
				r.addAnother(from) // it was taken until the end
			}
			if _, err := r.Rename(t.Context(), q); err != nil && !isRenamedBefore(err) {
				t.Errorf("%s: a late copy: %v", what, err)
			}
			r.wantAnother(what, from)
			if have := r.namesOf(from, to, third); len(have) != 2 {
				t.Errorf("%s: there are jobs %v", what, have)
			}
			r.wantClean()
		}
	}
}

// TestLateCopyAfterACrash: the process of the first copy dies before or after each step, and others end its rename. A
// copy then ends the rename, if it was aborted, or is answered as a late one.
func TestLateCopyAfterACrash(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	for dieAt := 1; dieAt <= 5; dieAt++ {
		for _, lost := range []bool{false, true} {
			what := fmt.Sprintf("dies at step %d, after it: %v", dieAt, lost)
			suffix := fmt.Sprintf("-%d-%v", dieAt, lost)
			from, to, third := "a"+suffix, "b"+suffix, "c"+suffix
			r.addFailing(from)
			q := job.RenameRequest{Key: keyOf(from), NewID: to, RequestID: "r1"}
			dying := &steppedStore{Store: r.store, dieAt: dieAt, lost: lost}
			_, _ = r.through(dying).Rename(t.Context(), q)
			if dying.steps < dieAt {
				t.Fatalf("%s: it did not die", what)
			}
			r.endAll()
			have := r.namesOf(from, to)
			if len(have) != 1 {
				t.Fatalf("%s: there are jobs %v", what, have)
			}
			if have[0] == from { // aborted: the copy is the first one that is successful
				r.renameTo(from, to, "r1")
			}
			r.renameTo(to, third, "r2")
			r.addAnother(from)
			if _, err := r.Rename(t.Context(), q); !isRenamedBefore(err) {
				t.Errorf("%s: %v", what, err)
			}
			r.wantAnother(what, from)
		}
	}
	r.wantClean()
}

// finishedRenamesKey is where the shard of a job keeps the request ids of renames that have ended.
func (r *renameRig) finishedRenamesKey(id string) string {
	return strings.TrimSuffix(r.store.LockKey(r.store.ShardOf(keyOf(id))), "lock") + "renamed"
}

// putFinished stores the request ids of n renames that have ended, some time ago.
func (r *renameRig) putFinished(key, prefix string, n int, ago time.Duration) {
	r.t.Helper()
	pipe := r.admin.Pipeline()
	for i := range n {
		field := fmt.Sprintf("%s-%04d r", prefix, i)
		at := r.clock.Load() - ago.Milliseconds() + int64(i)
		pipe.HSet(r.t.Context(), key, field, `{"to":"x"}`)
		pipe.ZAdd(r.t.Context(), key+":times", redis.Z{Score: float64(at), Member: field})
	}
	if _, err := pipe.Exec(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// finishedFields are the kept request ids, the oldest first.
func (r *renameRig) finishedFields(key string) []string {
	r.t.Helper()
	inOrder, err := r.admin.ZRange(r.t.Context(), key+":times", 0, -1).Result()
	fields, err2 := r.admin.HKeys(r.t.Context(), key).Result()
	slices.Sort(fields)
	if err := errors.Join(err, err2); err != nil || !slices.Equal(fields, slices.Sorted(slices.Values(inOrder))) {
		r.t.Errorf("%d fields and %d times, %v", len(fields), len(inOrder), err)
	}
	return inOrder
}

// TestRequestIDsOfRenamesAreBounded: those that are too old or too many are removed, and all of them when no rename has
// ended for a day.
func TestRequestIDsOfRenamesAreBounded(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	r.addFailing("a")
	key := r.finishedRenamesKey("a")
	r.putFinished(key, "default/old", 10, job.FinishedRenamesAge+time.Minute)
	r.putFinished(key, "default/new", job.MaxFinishedRenames, time.Minute)
	r.renameTo("a", "b", "r1")
	fields := r.finishedFields(key)
	if n := len(fields); n != job.KeptFinishedRenames || fields[n-1] != "default/a r1" ||
		fields[0] != fmt.Sprintf("default/new-%04d r", job.MaxFinishedRenames+1-job.KeptFinishedRenames) {
		t.Errorf("%d are left: %.200v", n, fields)
	}
	for _, name := range []string{key, key + ":times"} {
		if ttl := r.admin.PTTL(t.Context(), name).Val(); ttl <= 0 || ttl > job.FinishedRenamesAge {
			t.Errorf("%s expires in %v", name, ttl)
		}
	}
	// The stored form.
	if text := r.admin.HGet(t.Context(), key, "default/a r1").Val(); !strings.HasPrefix(text, `{"to":"b","created":1`) {
		t.Errorf("stored %s", text)
	}
}

// TestRenamesOfANamespaceRemoveNoneOfOthers: a namespace with few renames keeps all of their request ids, also where
// they are the oldest ones of the shard. Namespaces with many keep about as many as each other.
func TestRenamesOfANamespaceRemoveNoneOfOthers(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	r.addFailing("a")
	key := r.finishedRenamesKey("a")
	few, some, most := 500, 1600, job.MaxFinishedRenames-2100
	r.putFinished(key, "few/j", few, 3*time.Hour)
	r.putFinished(key, "some/j", some, 2*time.Hour)
	r.putFinished(key, "most/j", most, time.Hour)
	r.renameTo("a", "b", "r1")
	counts := map[string]int{}
	for _, field := range r.finishedFields(key) {
		namespace, _, _ := strings.Cut(field, "/")
		counts[namespace]++
	}
	want := map[string]int{"default": 1, "few": few, "some": some, "most": job.KeptFinishedRenames - 1 - few - some}
	if !maps.Equal(counts, want) {
		t.Errorf("%v are left, want %v", counts, want)
	}
}

// TestEarlierNodesEndRenames: a node of an earlier version that ends a rename keeps no request id. The rename ends all the
// same, and a copy is answered with the job while that has the new name.
func TestEarlierNodesEndRenames(t *testing.T) {
	t.Parallel()
	r := newRenameRig(t)
	r.addFailing("a")
	q := job.RenameRequest{Key: keyOf("a"), NewID: "b", RequestID: "r1"}
	dying := &steppedStore{Store: r.store, dieAt: 4} // the job is stored under its new name
	if _, _ = r.through(dying).Rename(t.Context(), q); dying.steps < 4 {
		t.Fatal("it did not die")
	}
	if err := r.through(&forgetfulStore{r.store}).FinishRenames(t.Context(), []int{0, 1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	r.addAnother("a")
	if renamed, err := r.Rename(t.Context(), q); err != nil || renamed.Definition.ID != "b" {
		t.Errorf("%+v, %v", renamed.Definition, err)
	}
	r.wantAnother("ended by an earlier node", "a")
	r.wantClean()
}

// forgetfulStore ends renames as nodes of an earlier version do.
type forgetfulStore struct{ *redisstore.Store }

func (s *forgetfulStore) ReleaseName(ctx context.Context, kept *job.KeptJob) error {
	without := *kept
	without.RequestID = ""
	return s.Store.ReleaseName(ctx, &without)
}
