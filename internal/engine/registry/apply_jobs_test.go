package registry_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/auth/payloadkeys"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/engine/registry"
	"github.com/fermata-io/fermata/internal/test/keytest"
)

func owned(id, owner string) job.Definition {
	d := jobOf(id)
	d.Labels = map[string]string{job.OwnerLabel: owner}
	return d
}

// seen gives desired jobs the etags that a plan saw, and tells what it would do.
func (r *rig) seen(t *testing.T, desiredJobs []job.DesiredJob, force bool) []job.ApplyResult {
	t.Helper()
	plan := r.PlanJobs(t.Context(), desiredJobs, force)
	for i, a := range plan {
		desiredJobs[i].Etag = ""
		if a.Before != nil {
			desiredJobs[i].Etag = a.Before.Definition.Etag()
		}
	}
	return plan
}

func (r *rig) one(t *testing.T, w job.DesiredJob) (planned, applied job.ApplyResult) {
	t.Helper()
	desiredJobs := []job.DesiredJob{w}
	planned = r.seen(t, desiredJobs, false)[0]
	return planned, r.ApplyJobs(t.Context(), desiredJobs, false)[0]
}

func TestLifeOfADesiredJob(t *testing.T) {
	r := newRig(t)
	ctx, key := t.Context(), job.Key{Namespace: "default", ID: "a"}
	step := func(w job.DesiredJob, want job.ApplyAction) job.ApplyResult {
		t.Helper()
		planned, applied := r.one(t, w)
		if planned.Err != nil || applied.Err != nil || planned.Action != want || applied.Action != want {
			t.Fatalf("planned %v %v, applied %v %v, want %v", planned.Action, planned.Err, applied.Action, applied.Err, want)
		}
		if again, _ := r.one(t, w); again.Err != nil || again.Action != job.ApplyUnchanged {
			t.Fatalf("once more it is %v %v", again.Action, again.Err)
		}
		return applied
	}
	made := step(job.DesiredJob{Definition: owned("a", "x"), Pause: true}, job.ApplyCreate)
	if s := made.After.State; s.Status() != job.StatusPaused || s.PauseNote == "" {
		t.Errorf("created as %v, note %q", s.Status(), s.PauseNote)
	}
	if same := step(job.DesiredJob{Definition: owned("a", "x")}, job.ApplyUnchanged); same.Before.State.Status() != job.StatusPaused {
		t.Error("a desired job that says nothing of a pause ended it")
	}
	if on := step(job.DesiredJob{Definition: owned("a", "x"), Resume: true}, job.ApplyUpdate); on.After.State.Status() != job.StatusScheduled {
		t.Errorf("resumed as %v", on.After.State.Status())
	}
	d := owned("a", "x")
	d.Timeout = time.Minute
	held := step(job.DesiredJob{Definition: d, Pause: true}, job.ApplyUpdate)
	if stored, err := r.Get(ctx, key); err != nil || stored.State.Status() != job.StatusPaused || stored.Definition.Timeout != time.Minute {
		t.Errorf("%+v, %v", stored, err)
	}
	// Deleting is for the plan's reader; the plan of a deletion is the absence of a desired job.
	if a := r.PlanJobs(ctx, []job.DesiredJob{{Definition: job.Definition{Key: key}, Delete: true}}, false)[0]; a.Err == nil {
		t.Error("a plan took a deletion")
	}
	gone := job.DesiredJob{Definition: job.Definition{Key: key}, Delete: true, Etag: held.After.Definition.Etag()}
	for range 2 { // a repetition finds nothing, which is what was wished
		if a := r.ApplyJobs(ctx, []job.DesiredJob{gone}, false)[0]; a.Err != nil || a.Action != job.ApplyDelete {
			t.Fatalf("deleted: %v %v", a.Action, a.Err)
		}
	}
	if _, err := r.Get(ctx, key); !errors.Is(err, job.ErrNotFound) {
		t.Error(err)
	}
}

func TestUnchangedJobsAreLeftAlone(t *testing.T) {
	r := newRig(t)
	desiredJob := job.DesiredJob{Definition: owned("a", "x")}
	r.one(t, desiredJob)
	key := desiredJob.Definition.Key
	if _, _, err := r.RunJob(t.Context(), key, job.RequestManualRun{RequestID: "m"}); err != nil {
		t.Fatal(err)
	}
	live := r.lease(t, key)
	r.book.SubmitAndWait(t.Context(), job.Change{Record: key.Record(), Input: job.FinishAttempt{Token: live.Known.State.Token, Outcome: job.OutcomeFailed, Error: "no"}})
	before, err := r.Get(t.Context(), key)
	if err != nil || before.State.Failures != 1 {
		t.Fatal(before.State.Failures, err)
	}
	if _, a := r.one(t, desiredJob); a.Action != job.ApplyUnchanged || a.Err != nil {
		t.Fatal(a.Action, a.Err)
	}
	after, err := r.Get(t.Context(), key)
	if err != nil || after.State.Revision != before.State.Revision || after.State.Due != before.State.Due || after.State.Failures != 1 || after.Definition.Etag() != before.Definition.Etag() {
		t.Errorf("%+v\nwas\n%+v\n%v", after.State, before.State, err)
	}
}

// TestEditsInBetweenRefuseADesiredJob: what was planned is done to what was seen, or not at all.
func TestEditsInBetweenRefuseADesiredJob(t *testing.T) {
	r := newRig(t)
	ctx, key := t.Context(), job.Key{Namespace: "default", ID: "a"}
	changed := owned("a", "x")
	changed.Timeout = time.Minute

	// Created in between: another job, and the same one.
	desiredJobs := []job.DesiredJob{{Definition: changed}}
	r.seen(t, desiredJobs, false)
	if _, err := r.Create(ctx, jobOf("a"), ""); err != nil {
		t.Fatal(err)
	}
	var exists *job.ExistsError
	if a := r.ApplyJobs(ctx, desiredJobs, false)[0]; !errors.As(a.Err, &exists) {
		t.Errorf("created in between: %v", a.Err)
	}
	// Edited in between.
	r.seen(t, desiredJobs, false)
	edit := func(priority uint8) {
		t.Helper()
		if _, err := r.Update(ctx, job.UpdateRequest{Key: key, Merge: func(d job.Definition) (job.Definition, error) {
			d.Priority = priority
			return d, nil
		}}); err != nil {
			t.Fatal(err)
		}
	}
	edit(9)
	stale := desiredJobs[0]
	gone := job.DesiredJob{Definition: job.Definition{Key: key}, Delete: true, Etag: stale.Etag}
	var etag *job.EtagError
	for _, w := range []job.DesiredJob{stale, gone} {
		if a := r.ApplyJobs(ctx, []job.DesiredJob{w}, false)[0]; !errors.As(a.Err, &etag) {
			t.Errorf("edited in between: %v", a.Err)
		}
	}
	if stored, err := r.Get(ctx, key); err != nil || stored.Definition.Priority != 9 || stored.Definition.Timeout == time.Minute {
		t.Errorf("the edit was lost: %+v %v", stored.Definition, err)
	}
	// Deleted in between.
	r.seen(t, desiredJobs, false)
	if err := r.Delete(ctx, key, ""); err != nil {
		t.Fatal(err)
	}
	if a := r.ApplyJobs(ctx, desiredJobs, false)[0]; !errors.Is(a.Err, job.ErrNotFound) {
		t.Errorf("deleted in between: %v", a.Err)
	}
	if a := r.ApplyJobs(ctx, []job.DesiredJob{{Definition: job.Definition{Key: key}, Delete: true}}, false)[0]; a.Err == nil {
		t.Error("a deletion of whatever is there")
	}
}

// TestConcurrentApplies: of planners that race, each success is a change of what it
// saw, so that none is lost.
func TestConcurrentApplies(t *testing.T) {
	first, second := newRigs(t)
	if _, a := first.one(t, job.DesiredJob{Definition: owned("a", "x")}); a.Err != nil {
		t.Fatal(a.Err)
	}
	key := job.Key{Namespace: "default", ID: "a"}
	const each = 20
	done := make([]int, 2)
	var wg sync.WaitGroup
	for i, r := range []*rig{first, second} {
		wg.Go(func() {
			for done[i] < each {
				record, err := r.Get(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				d := owned("a", "x")
				n, _ := strconv.Atoi(record.Definition.Labels["n"])
				d.Labels["n"] = strconv.Itoa(n + 1)
				a := r.ApplyJobs(t.Context(), []job.DesiredJob{{Definition: d, Etag: record.Definition.Etag()}}, false)[0]
				var etag *job.EtagError
				switch {
				case a.Err == nil && a.Action == job.ApplyUpdate:
					done[i]++
				case a.Err == nil: // the other one made it the same
				case !errors.As(a.Err, &etag):
					t.Error(a.Err)
					return
				}
			}
		})
	}
	wg.Wait()
	record, err := first.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := strconv.Atoi(record.Definition.Labels["n"]); n > done[0]+done[1] || n < each {
		t.Errorf("counted to %d by %v successes", n, done)
	}
	if revisions := int(record.Definition.Revision) - 1; record.Definition.Labels["n"] != strconv.Itoa(revisions) {
		t.Errorf("counted to %s by %d edits", record.Definition.Labels["n"], revisions)
	}
}

func TestOwnersAreKept(t *testing.T) {
	r := newRig(t)
	r.one(t, job.DesiredJob{Definition: owned("theirs", "them")})
	r.one(t, job.DesiredJob{Definition: jobOf("nobodys")})
	var unfit *job.PreconditionError
	for _, owner := range []string{"us", ""} {
		desiredJob := job.DesiredJob{Definition: owned("theirs", owner)}
		planned, applied := r.one(t, desiredJob)
		for _, a := range []job.ApplyResult{planned, applied} {
			if !errors.As(a.Err, &unfit) || unfit.Reason != job.ReasonOtherOwner {
				t.Errorf("%q: %v", owner, a.Err)
			}
		}
	}
	if _, a := r.one(t, job.DesiredJob{Definition: owned("nobodys", "us")}); a.Err != nil || a.Action != job.ApplyUpdate {
		t.Error(a.Action, a.Err)
	}
	desiredJobs := []job.DesiredJob{{Definition: owned("theirs", "us")}}
	r.seen(t, desiredJobs, true)
	if a := r.ApplyJobs(t.Context(), desiredJobs, true)[0]; a.Err != nil || a.After.Definition.Labels[job.OwnerLabel] != "us" {
		t.Error(a.Err)
	}
}

func TestEveryFaultIsReported(t *testing.T) {
	r := newRig(t)
	bad := owned("bad", "x")
	bad.Timeout, bad.Handler = -time.Second, ""
	bad.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"@daily", "x"}, TimeZone: "Mars/Base"}
	unread := job.DesiredJob{Definition: bad, Err: job.Invalid("job.retention", "is not a valid duration")}
	nameless := job.DesiredJob{Definition: jobOf("not an id")}
	desiredJobs := []job.DesiredJob{unread, nameless, {Definition: jobOf("a")}, {Definition: jobOf("a")}}
	for what, answers := range map[string][]job.ApplyResult{"plan": r.PlanJobs(t.Context(), desiredJobs, false), "apply": r.ApplyJobs(t.Context(), desiredJobs, false)} {
		var invalid *job.InvalidError
		if !errors.As(answers[0].Err, &invalid) || len(invalid.Violations) < 5 {
			t.Errorf("%s: %v", what, answers[0].Err)
		}
		if !errors.As(answers[1].Err, &invalid) || invalid.Violations[0].Field != "job_id" {
			t.Errorf("%s: %v", what, answers[1].Err)
		}
		if answers[2].Err != nil || !errors.As(answers[3].Err, &invalid) {
			t.Errorf("%s: twice: %v, %v", what, answers[2].Err, answers[3].Err)
		}
	}
}

// TestWhatHasPassedIsNotPlannedAnew: a one-time job whose retention is over has run.
func TestWhatHasPassedIsNotPlannedAnew(t *testing.T) {
	r := newRig(t)
	once, ended, to := owned("once", "x"), owned("ended", "x"), owned("to-come", "x")
	once.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.Now().Add(-time.Hour).Truncate(time.Millisecond)}
	ended.Schedule.EndAt = once.Schedule.At
	to.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.Now().Add(time.Hour).Truncate(time.Millisecond)}
	want := []job.ApplyAction{job.ApplyPassed, job.ApplyPassed, job.ApplyCreate}
	for i, a := range r.PlanJobs(t.Context(), []job.DesiredJob{{Definition: once}, {Definition: ended}, {Definition: to}}, false) {
		if a.Err != nil || a.Action != want[i] {
			t.Errorf("%s: %v %v", a.After.Definition.ID, a.Action, a.Err)
		}
	}
}

func TestSealedPayloadsAreCompared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("k1 "+base64.StdEncoding.EncodeToString(keytest.Key("one"))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ring, err := payloadkeys.Load(path, payloadkeys.Options{})
	if err != nil {
		t.Fatal(err)
	}
	plain := newRig(t)
	sealing, err := registry.NewUnhurried(registry.Options{Store: plain.store, SharedLimits: plain.store.Limits(), Ledger: plain.book, Sealer: ring})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Registry: sealing, store: plain.store, book: plain.book, redis: plain.redis, admin: plain.admin}
	desiredJob := job.DesiredJob{Definition: owned("a", "x")}
	if _, a := r.one(t, desiredJob); a.Err != nil || a.After.Definition.PayloadKey != "k1" {
		t.Fatal(a.Err)
	}
	if _, a := r.one(t, desiredJob); a.Action != job.ApplyUnchanged || a.Err != nil {
		t.Errorf("the same payload: %v %v", a.Action, a.Err)
	}
	asRead := desiredJob
	asRead.AsRead, asRead.Definition.Payload = true, nil
	if _, a := r.one(t, asRead); a.Action != job.ApplyUnchanged || a.Err != nil {
		t.Errorf("sent back as read: %v %v", a.Action, a.Err)
	}
	desiredJob.Definition.Payload = []byte("other")
	if _, a := r.one(t, desiredJob); a.Action != job.ApplyUpdate || a.Err != nil || a.After.Definition.PayloadKey != "k1" {
		t.Errorf("another payload: %v %v", a.Action, a.Err)
	}
	asRead.Definition.Key.ID = "new"
	if a, _ := r.one(t, asRead); a.Err == nil {
		t.Error("a job was made of a payload that nobody has")
	}
}

// TestPlansTellNothingOfSealedPayloads: to who may not edit a job, its plan is the same for every payload.
func TestPlansTellNothingOfSealedPayloads(t *testing.T) {
	s := newSealing(t)
	r, err := registry.NewUnhurried(registry.Options{Store: s.plain.store, SharedLimits: s.plain.store.Limits(),
		Ledger: s.plain.book, Sealer: s.ring,
		CheckPayload: func(_ string, payload []byte) []job.Violation {
			if string(payload) == "4711" || string(payload) == "bad" {
				return []job.Violation{{Description: "is bad"}}
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	plan := func(id, payload string, mayCompare bool) job.ApplyResult {
		d := *s.stored(t, job.Key{Namespace: "default", ID: id})
		d.Payload, d.PayloadKey = []byte(payload), ""
		desired := job.DesiredJob{Definition: d, MayCompare: func(*job.Definition) bool { return mayCompare }}
		return r.PlanJobs(t.Context(), []job.DesiredJob{desired}, false)[0]
	}
	put(t, s.bound, "pin", "1234")
	put(t, s.bound, "unchecked", "4711") // stored before payloads were checked
	put(t, s.plain, "plain", "1234")
	right, wrong := plan("pin", "1234", false), plan("pin", "9999", false)
	if right.Err != nil || !right.PayloadHidden || right.Action != job.ApplyUnchanged || !reflect.DeepEqual(right, wrong) {
		t.Errorf("the right payload: %+v\nanother one: %+v", right, wrong)
	}
	right, wrong = plan("unchecked", "4711", false), plan("unchecked", "bad", false)
	if right.Err == nil || !reflect.DeepEqual(right.Err, wrong.Err) {
		t.Errorf("a payload that would not pass: %v, another one: %v", right.Err, wrong.Err)
	}
	for id, mayCompare := range map[string]bool{"pin": true, "plain": false} { // that of plain can be read
		right, wrong = plan(id, "1234", mayCompare), plan(id, "9999", mayCompare)
		if right.PayloadHidden || wrong.PayloadHidden || wrong.Action != job.ApplyUpdate {
			t.Errorf("%s: %+v, %+v", id, right, wrong)
		}
	}
}

// TestAppliedTwiceIsAppliedOnce: whatever is wished, and whatever was there, a second
// plan has nothing to do.
func TestAppliedTwiceIsAppliedOnce(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		wishesOf := func(label string) []job.DesiredJob {
			desiredJobs := map[string]job.DesiredJob{}
			for range rapid.IntRange(1, 12).Draw(t, label) {
				d := owned(fmt.Sprintf("p%d-%d", round, rapid.IntRange(0, 8).Draw(t, "id")), "x")
				d.Priority = uint8(rapid.IntRange(0, 9).Draw(t, "priority"))
				d.Timeout = time.Duration(rapid.IntRange(1, 3).Draw(t, "timeout")) * time.Second
				d.Payload = []byte(rapid.SampledFrom([]string{"", "{}", "x"}).Draw(t, "payload"))
				if rapid.Bool().Draw(t, "cron") {
					d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"H * * * *"}, TimeZone: "Europe/Berlin"}
				}
				w := job.DesiredJob{Definition: d}
				switch rapid.IntRange(0, 2).Draw(t, "pause") {
				case 1:
					w.Pause = true
				case 2:
					w.Resume = true
				}
				desiredJobs[d.ID] = w
			}
			var list []job.DesiredJob
			for w := range maps.Values(desiredJobs) {
				list = append(list, w)
			}
			return list
		}
		apply := func(desiredJobs []job.DesiredJob) []job.ApplyResult {
			for i, a := range r.PlanJobs(ctx, desiredJobs, false) {
				if desiredJobs[i].Etag = ""; a.Before != nil {
					desiredJobs[i].Etag = a.Before.Definition.Etag()
				}
			}
			return r.ApplyJobs(ctx, desiredJobs, false)
		}
		for _, label := range []string{"before", "after"} {
			desiredJobs := wishesOf(label)
			for _, a := range apply(desiredJobs) {
				if a.Err != nil {
					t.Fatal(a.Err)
				}
			}
			for _, a := range r.PlanJobs(ctx, desiredJobs, false) {
				if a.Err != nil || a.Action != job.ApplyUnchanged {
					t.Fatalf("%s: %v %v", a.Before.Definition.ID, a.Action, a.Err)
				}
			}
			for _, a := range r.ApplyJobs(ctx, desiredJobs, false) {
				if a.Err != nil || a.Action != job.ApplyUnchanged {
					t.Fatalf("%s: applied as %v %v", a.Before.Definition.ID, a.Action, a.Err)
				}
			}
		}
	})
}
