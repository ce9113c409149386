package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// die makes a job's current run a dead one.
func (r *rig) die(t *testing.T, key job.Key) {
	t.Helper()
	leased := r.lease(t, key)
	result := r.book.SubmitAndWait(t.Context(), job.Change{Record: leased.Record, Input: job.FinishAttempt{
		Token: leased.Known.State.Token, Outcome: job.OutcomeFailed, Permanent: true, Error: "503",
	}})[0]
	if result.Err != nil || result.Answer != job.Applied {
		t.Fatalf("settle: %+v", result)
	}
}

func TestHintAndQueueSettingsOnRedis(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	key := job.Key{Namespace: "default", ID: "ping"}
	created, err := r.Create(ctx, jobOf("ping"), "")
	if err != nil {
		t.Fatal(err)
	}
	at := created.Definition.CreatedMS + 30*60_000
	if _, err = r.Hint(ctx, key, job.Hint{Source: job.HintPlanner, AtMS: at, Reason: "quiet hours"}); err != nil {
		t.Fatal(err)
	}
	got, err := r.Get(ctx, key)
	if err != nil || got.State.Due != at || got.State.Hint.Source != job.HintPlanner || got.State.Hint.Reason != "quiet hours" || got.IndexMS != at {
		t.Errorf("hinted: %+v, %v", got.State, err)
	}
	if got, err = r.Hint(ctx, key, job.Hint{}); err != nil || got.State.Hint != (job.Hint{}) || got.State.Due >= at {
		t.Errorf("cleared: %+v, %v", got.State, err)
	}
	mail := job.QueueKey{Namespace: "default", Queue: "mail"}
	want := job.QueueSettings{MaxConcurrency: 4, Rate: 2.5, Burst: 10, RecoveryRate: 0.001}
	if _, err := r.SetQueueSettings(ctx, mail, job.QueueChange{Settings: want}); err != nil {
		t.Fatal(err)
	}
	if got, err := r.QueueSettings(ctx, mail); err != nil || got != want {
		t.Errorf("settings %+v, %v", got, err)
	}
	if got, err := r.QueueSettings(ctx, job.QueueKey{Namespace: "default", Queue: "other"}); err != nil || got != (job.QueueSettings{}) {
		t.Errorf("another queue: %+v, %v", got, err)
	}
}

func TestBackfillOnRedis(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	d := jobOf("hourly")
	d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"0 * * * *"}}
	created, err := r.Create(ctx, d, "")
	if err != nil {
		t.Fatal(err)
	}
	hour := time.Hour.Milliseconds()
	from := int64(created.Definition.CreatedMS)/hour*hour - 10*hour
	q := job.BackfillRequest{FromMS: unixtime.Milli(from), ToMS: unixtime.Milli(from + 5*hour), Overlap: job.OverlapBufferAll, RequestID: "b1"}
	for range 2 {
		got, err := r.Backfill(ctx, d.Key, q)
		if err != nil || len(got.State.Backfills) != 1 || len(got.State.ChildSlots()) != 1 {
			t.Fatalf("backfill: %+v, %v", got.State, err)
		}
	}
	runs, err := r.ListRuns(ctx, d.Key)
	if err != nil || len(runs) != 2 || runs[1].ID != fmt.Sprint("b-b1-", from) || runs[1].Phase != job.RunWaiting {
		t.Fatalf("runs: %+v, %v", runs, err)
	}
	// One run of it makes room for the next.
	if v, err := r.CancelRun(ctx, d.Key, runs[1].ID); err != nil || v.Outcome != job.OutcomeCancelled || v.Phase != job.RunFinished {
		t.Errorf("cancel: %+v, %v", v, err)
	}
	runs, err = r.ListRuns(ctx, d.Key)
	if err != nil || !slices.ContainsFunc(runs, func(v job.RunView) bool { return v.ID == fmt.Sprint("b-b1-", from+hour) && v.Phase == job.RunWaiting }) {
		t.Errorf("the second: %+v, %v", runs, err)
	}
	if got, err := r.CancelBackfill(ctx, d.Key, "b1"); err != nil || len(got.State.Backfills) != 0 {
		t.Errorf("cancel: %+v, %v", got.State, err)
	}
	if err := r.Delete(ctx, d.Key, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create(ctx, d, ""); err != nil {
		t.Errorf("the id of a deleted job whose run had not begun: %v", err)
	}
}

func TestDeadLettersOnRedis(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	all := job.Filter{Namespace: "default"}
	var keys []job.Key
	for i := range 6 {
		d := jobOf(fmt.Sprintf("j%d", i))
		if i == 5 {
			d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.Now().Add(-time.Second)}
		}
		if _, err := r.Create(ctx, d, ""); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.RunJob(ctx, d.Key, job.RequestManualRun{RequestID: "m"}); err != nil {
			t.Fatal(err)
		}
		r.die(t, d.Key)
		keys = append(keys, d.Key)
	}
	records := func() []job.RecordID {
		var ids []job.RecordID
		for token, first := "", true; first || token != ""; first = false {
			page, err := r.ListDeadLetters(ctx, all, 2, token)
			if err != nil || len(page.DeadLetters) > 2 {
				t.Fatalf("%d letters, %v", len(page.DeadLetters), err)
			}
			for _, l := range page.DeadLetters {
				ids = append(ids, l.Record)
				if l.Run.Error != "503" || l.Run.ID != "m-m" || l.Labels["team"] != "ops" || l.Queue != "default" || l.ExpireMS == 0 {
					t.Errorf("letter %+v", l)
				}
			}
			token = page.Next
		}
		slices.Sort(ids)
		return ids
	}
	want := []job.RecordID{"default/j0#d0", "default/j1#d0", "default/j2#d0", "default/j3#d0", "default/j4#d0", "default/j5"}
	if got := records(); !slices.Equal(got, want) {
		t.Fatalf("letters %v", got)
	}
	named := job.RedriveRequest{Filter: all, Records: []job.RecordID{want[0], want[5], "default/j1#d2"}, DryRun: true}
	for range 2 {
		if got, err := r.RedriveDeadLetters(ctx, named); err != nil || got.Done != 2 || got.Refused != 1 {
			t.Errorf("by name: %+v, %v", got, err)
		}
		named.DryRun = false
	}
	if got := records(); !slices.Equal(got, want[1:5]) {
		t.Errorf("left: %v", got)
	}
	if got, err := r.RedriveDeadLetters(ctx, job.RedriveRequest{Filter: job.Filter{Namespace: "default", IDPrefix: "j1"}}); err != nil || got.Done != 1 {
		t.Errorf("by filter: %+v, %v", got, err)
	}
	if got, err := r.RedriveDeadLetters(ctx, job.RedriveRequest{Filter: all}); err != nil || got.Done != 3 || got.Next != "" {
		t.Errorf("the rest: %+v, %v", got, err)
	}
	if got := records(); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	runs, err := r.ListRuns(ctx, keys[0])
	if err != nil || !slices.ContainsFunc(runs, func(v job.RunView) bool { return v.ID == "m-m" && v.Phase == job.RunWaiting }) {
		t.Errorf("the run that is tried again: %+v, %v", runs, err)
	}
	once, err := r.Get(ctx, keys[5])
	if err != nil || once.State.Region != job.RegionDue || once.State.Source != job.DelayRedrive {
		t.Errorf("one-time job: %+v, %v", once.State, err)
	}
}

// TestPauseAndResumeAllOnRedis holds twenty jobs of which five are held already, for
// another reason, and brings back those that it held itself.
func TestPauseAndResumeAllOnRedis(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	for i := range 20 {
		d := jobOf(fmt.Sprintf("j%d", i))
		if _, err := r.Create(ctx, d, ""); err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 {
			if _, err := r.Pause(ctx, d.Key, "broken"); err != nil {
				t.Fatal(err)
			}
		}
	}
	f := job.Filter{Namespace: "default"}
	all := func(page func(token string) (job.Bulk, error)) (done int) {
		for token, first := "", true; first || token != ""; first = false {
			got, err := page(token)
			if err != nil {
				t.Fatal(err)
			}
			done, token = done+got.Done, got.Next
		}
		return done
	}
	pause := func(token string) (job.Bulk, error) { return r.PauseAll(ctx, f, "outage", token) }
	resume := func(note string) func(string) (job.Bulk, error) {
		return func(token string) (job.Bulk, error) { return r.ResumeAll(ctx, f, note, false, token) }
	}
	held := func() (notes []string) {
		all(func(token string) (job.Bulk, error) {
			page, err := r.List(ctx, job.Filter{Namespace: "default", Status: job.StatusPaused}, 0, token)
			for _, record := range page.Records {
				notes = append(notes, record.State.PauseNote)
			}
			return job.Bulk{Next: page.Next}, err
		})
		return notes
	}
	if n := all(pause); n != 15 || len(held()) != 20 {
		t.Errorf("paused %d of 15, %q", n, held())
	}
	if n := all(pause); n != 0 {
		t.Errorf("paused %d again", n)
	}
	if n := all(resume("outage")); n != 15 || !slices.Equal(held(), slices.Repeat([]string{"broken"}, 5)) {
		t.Errorf("resumed %d of 15, %q", n, held())
	}
	if n := all(resume("")); n != 5 || len(held()) != 0 {
		t.Errorf("resumed %d of 5, %q", n, held())
	}
	long := strings.Repeat("x", job.MaxNote+1)
	_, errPause := r.PauseAll(ctx, f, long, "")
	_, errResume := r.ResumeAll(ctx, f, long, false, "")
	for _, err := range []error{errPause, errResume} {
		var invalid *job.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("a long note: %v", err)
		}
	}
}

func TestExplainOnRedis(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	d := jobOf("ping")
	d.Target = "api"
	if _, err := r.Create(ctx, d, ""); err != nil {
		t.Fatal(err)
	}
	limits := job.QueueChange{Settings: job.QueueSettings{MaxConcurrency: 2}}
	if _, err := r.SetQueueSettings(ctx, job.QueueKey{Namespace: "default", Queue: "default"}, limits); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Pause(ctx, d.Key, "deploy"); err != nil {
		t.Fatal(err)
	}
	e, err := r.Explain(ctx, d.Key)
	if err != nil || e.Explanation.Summary == "" || !slices.ContainsFunc(e.Explanation.Reasons, func(r job.Reason) bool { return r.Kind == job.ReasonPaused }) {
		t.Errorf("%+v, %v", e.Explanation, err)
	}
	r.redis.Close()
	short, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := r.Explain(short, d.Key); !errors.Is(err, job.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no Redis: %v", err)
	}
}
