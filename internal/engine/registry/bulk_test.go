package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/jobfilter"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// bulkRequest is a request of the caller "ann" for the jobs of the namespace that match a filter.
func bulkRequest(t testing.TB, action job.BulkAction, filter string) job.BulkRequest {
	t.Helper()
	condition, err := jobfilter.Parse(filter)
	if err != nil {
		t.Fatal(err)
	}
	return job.BulkRequest{Action: action, Filter: job.Filter{Namespace: "default", Condition: condition}, Caller: "ann",
		RequestID: "op-1"}
}

// confirm makes the dry run of a request and returns the request with the confirmation.
func confirm(t testing.TB, r *Registry, q job.BulkRequest) job.BulkRequest {
	t.Helper()
	q.DryRun = true
	for {
		page, err := r.ChangeMatching(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if q.Token = page.Next; q.Token == "" {
			q.DryRun, q.Confirmation = false, page.Confirmation
			return q
		}
	}
}

// changeAll calls until the last page, and returns it. lost has each reply of a page thrown away once.
func changeAll(t testing.TB, r *Registry, q job.BulkRequest, lost bool) (last job.BulkPage) {
	t.Helper()
	var sum job.BulkCounts
	for {
		page, err := r.ChangeMatching(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if lost {
			again, err := r.ChangeMatching(t.Context(), q)
			if err != nil || !again.Repeat || again.BulkCounts != page.BulkCounts || again.Total != page.Total ||
				again.Next != page.Next {
				t.Fatalf("repeated page: %+v %v, before %+v", again, err, page)
			}
		}
		if sum = sum.Plus(page.BulkCounts); sum != page.Total {
			t.Fatalf("pages have %+v, the total is %+v", sum, page.Total)
		}
		if q.Token = page.Next; q.Token == "" {
			return page
		}
	}
}

// addJobs registers jobs j000 ... with the label team=a, and as many with team=b.
func addJobs(t testing.TB, r *Registry, n int) {
	t.Helper()
	for i := range n {
		for _, team := range []string{"a", "b"} {
			d := definition(fmt.Sprintf("%s%03d", team, i))
			d.Labels, d.Queue = map[string]string{"team": team}, "q"+team
			if _, err := r.Create(t.Context(), d, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func reasonOf(err error) string {
	var bulk *job.BulkError
	if errors.As(err, &bulk) {
		return bulk.Reason
	}
	return ""
}

func TestManyJobsAreDeletedByFilter(t *testing.T) {
	f, r := newFake(t)
	addJobs(t, r, 500)
	q := confirm(t, r, bulkRequest(t, job.BulkDeleteJobs, "labels.team = a"))
	if len(f.records) != 1000 {
		t.Fatalf("the dry run left %d jobs", len(f.records))
	}
	last := changeAll(t, r, q, true)
	if want := (job.BulkCounts{Matched: 500, Changed: 500}); last.Total != want || len(f.records) != 500 {
		t.Errorf("%+v, %d jobs left", last.Total, len(f.records))
	}
	for key := range f.records {
		if !strings.HasPrefix(key.ID, "b") {
			t.Errorf("%s is left", key.ID)
		}
	}
	// The change has ended: calling again changes nothing, also jobs that match since.
	addJobs(t, r, 1)
	q.Token = ""
	again, err := r.ChangeMatching(t.Context(), q)
	if err != nil || again.Total != last.Total || !again.Finished || len(f.records) != 501 {
		t.Errorf("%+v %v, %d jobs", again, err, len(f.records))
	}
}

// TestPageIsRepeatedAfterItBroke: each page breaks once after some of its changes, as if its node had died.
func TestPageIsRepeatedAfterItBroke(t *testing.T) {
	for action := job.BulkPauseJobs; action <= job.BulkDeleteJobs; action++ {
		t.Run(action.String(), func(t *testing.T) {
			f, r := newFake(t)
			addJobs(t, r, 300)
			if action == job.BulkResumeJobs {
				changeAll(t, r, confirm(t, r, bulkRequest(t, job.BulkPauseJobs, "labels.team = a")), false)
			}
			if action == job.BulkCancelRuns {
				for key := range f.records {
					if key.ID < "b" {
						f.lease(key, 7)
					}
				}
			}
			f.notices = nil
			q := confirm(t, r, bulkRequest(t, action, "labels.team = a"))
			broken := &breakingLedger{fake: f, after: 40}
			r.o.Ledger = broken
			for {
				page, err := r.ChangeMatching(t.Context(), q)
				if errors.Is(err, job.ErrUnavailable) {
					broken.after = 1 << 30
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				broken.after = broken.done + 40
				if q.Token = page.Next; q.Token == "" {
					if want := (job.BulkCounts{Matched: 300, Changed: 300}); page.Total != want {
						t.Errorf("%+v, want %+v", page.Total, want)
					}
					break
				}
			}
			kind := map[job.BulkAction]job.NoticeKind{job.BulkPauseJobs: job.JobPaused, job.BulkResumeJobs: job.JobResumed,
				job.BulkDeleteJobs: job.JobDeleted, job.BulkRunJobs: job.ManualRunStarted}
			if want, ok := kind[action]; ok {
				if n := f.countNotices(want); n != 300 {
					t.Errorf("%d of %v, want 300", n, want)
				}
			}
		})
	}
}

// breakingLedger changes so many records, and then fails.
type breakingLedger struct {
	*fake
	done, after int
}

func (l *breakingLedger) SubmitAndWait(ctx context.Context, changes ...job.Change) (out []job.ChangeResult) {
	for _, c := range changes {
		if l.done++; l.done > l.after {
			out = append(out, job.ChangeResult{Err: job.ErrUnavailable})
			continue
		}
		out = append(out, l.fake.SubmitAndWait(ctx, c)...)
	}
	return out
}

func (f *fake) countNotices(kind job.NoticeKind) (n int) {
	for _, notice := range f.notices {
		if notice.Kind == kind {
			n++
		}
	}
	return n
}

// TestRepeatedPageLeavesLaterChangesAlone: what people did to a job between the page and its repetition stays.
func TestRepeatedPageLeavesLaterChangesAlone(t *testing.T) {
	key := job.Key{Namespace: "default", ID: "a000"}
	for action, meddle := range map[job.BulkAction]func(r *Registry) error{
		job.BulkPauseJobs:  func(r *Registry) error { _, err := r.Resume(context.Background(), key, false); return err },
		job.BulkResumeJobs: func(r *Registry) error { _, err := r.Pause(context.Background(), key, "again"); return err },
		job.BulkDeleteJobs: func(r *Registry) error {
			_, err := r.Create(context.Background(), definition("a000"), "")
			return err
		},
	} {
		t.Run(action.String(), func(t *testing.T) {
			f, r := newFake(t)
			addJobs(t, r, 1)
			if action == job.BulkResumeJobs {
				if _, err := r.Pause(t.Context(), key, "before"); err != nil {
					t.Fatal(err)
				}
			}
			q := bulkRequest(t, action, "labels.team = a")
			store := &lossyCells{fake: f, lose: 3} // the result of the page is not stored
			r.o.SharedLimits = store
			if _, err := r.ChangeMatching(t.Context(), q); !errors.Is(err, job.ErrUnavailable) {
				t.Fatal(err)
			}
			f.now = f.now.Add(time.Second)
			if err := meddle(r); err != nil {
				t.Fatal(err)
			}
			want := f.records[key]
			page, err := r.ChangeMatching(t.Context(), q)
			if err != nil || page.Changed+page.Refused != 1 || !page.Repeat {
				t.Errorf("%+v %v", page, err)
			}
			got, ok := f.records[key]
			if !ok || got.State.Paused != want.State.Paused || got.State.PauseNote != want.State.PauseNote {
				t.Errorf("the job is %+v, before the repetition it was %+v", got.State, want.State)
			}
		})
	}
}

// lossyCells fails the nth swap.
type lossyCells struct {
	*fake
	swaps, lose int
}

func (l *lossyCells) SwapCells(ctx context.Context, swaps []job.CellSwap) []job.CellReply {
	if l.swaps++; l.swaps == l.lose {
		return []job.CellReply{{Err: job.ErrUnavailable}}
	}
	return l.fake.SwapCells(ctx, swaps)
}

// TestTwoCallsForOnePage: the first one is still at work when its client has given up on it and calls again. The
// counts are those of both.
func TestTwoCallsForOnePage(t *testing.T) {
	f, r := newFake(t)
	addJobs(t, r, 50)
	q := bulkRequest(t, job.BulkDeleteJobs, "labels.team = a")
	var second job.BulkPage
	f.meddle = func() {
		var err error
		if second, err = r.ChangeMatching(t.Context(), q); err != nil {
			t.Error(err)
		}
	}
	first, err := r.ChangeMatching(t.Context(), q)
	if want := (job.BulkCounts{Matched: 50, Changed: 50}); err != nil || first.Total != want || second.Total != want {
		t.Errorf("%+v, %+v, %v", first, second, err)
	}
}

func TestManyMatchesNeedAConfirmation(t *testing.T) {
	f, r := newFake(t)
	addJobs(t, r, 150)
	plain := bulkRequest(t, job.BulkDeleteJobs, "labels.team = a")
	good := confirm(t, r, plain)
	with := func(change func(q *job.BulkRequest)) job.BulkRequest {
		q := good
		change(&q)
		return q
	}
	forged := []byte(good.Confirmation)
	forged[3] ^= 1
	f.now = f.now.Add(confirmationLife)
	_, expired := r.ChangeMatching(t.Context(), good)
	f.now = unixtime.MilliOf(start)
	_, noToken := r.ChangeMatching(t.Context(), plain)
	for name, c := range map[string]struct {
		err    error
		reason string
	}{
		"none": {noToken, job.ReasonConfirmationRequired}, "expired": {expired, job.ReasonConfirmationExpired},
	} {
		if reasonOf(c.err) != c.reason {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	for name, q := range map[string]job.BulkRequest{
		"forged":       with(func(q *job.BulkRequest) { q.Confirmation = string(forged) }),
		"other text":   with(func(q *job.BulkRequest) { q.Confirmation = "x.y" }),
		"of another":   with(func(q *job.BulkRequest) { q.Caller = "bob" }),
		"other action": with(func(q *job.BulkRequest) { q.Action = job.BulkRunJobs }),
		"other parent": with(func(q *job.BulkRequest) { q.Filter.Namespace = "other" }),
		"other filter": with(func(q *job.BulkRequest) {
			q.Filter.Condition = bulkRequest(t, 0, "labels.team = b").Filter.Condition
		}),
		"other options": with(func(q *job.BulkRequest) { q.Options.CatchUp = true }),
	} {
		if _, err := r.ChangeMatching(t.Context(), q); violated(err) != "confirmation" {
			t.Errorf("%s: %v", name, err)
		}
	}
	other, err := New(r.o)
	if err != nil {
		t.Fatal(err)
	}
	other.o.TokenKey = []byte("of another keyspace")
	if _, err := other.ChangeMatching(t.Context(), good); violated(err) != "confirmation" {
		t.Errorf("another keyspace: %v", err)
	}
	if len(f.records) != 300 {
		t.Errorf("%d jobs are left of 300", len(f.records))
	}
	if last := changeAll(t, r, good, false); last.Total.Changed != 150 {
		t.Errorf("%+v", last)
	}
}

// TestManyMoreMatchesStopAChange: 10 % more than were confirmed are changed too.
func TestManyMoreMatchesStopAChange(t *testing.T) {
	f, r := newFake(t)
	addJobs(t, r, 110)
	q := confirm(t, r, bulkRequest(t, job.BulkDeleteJobs, "id:*"))
	addJobs(t, r, 121)
	if page := changeAll(t, r, q, false); page.Total.Changed != 242 {
		t.Errorf("within 10 %%: %+v", page)
	}
	addJobs(t, r, 60)
	few := bulkRequest(t, job.BulkDeleteJobs, "labels.team = a")
	few = confirm(t, r, few)
	few.RequestID = "op-2"
	addJobs(t, r, 101)
	if _, err := r.ChangeMatching(t.Context(), few); reasonOf(err) != job.ReasonTooManyMatches || len(f.records) != 202 {
		t.Errorf("%v, %d jobs", err, len(f.records))
	}
}

func TestResumeByPauseID(t *testing.T) {
	f, r := newFake(t)
	addJobs(t, r, 4)
	key := func(id string) job.Key { return job.Key{Namespace: "default", ID: id} }
	must := func(_ job.Record, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(r.Pause(t.Context(), key("a000"), "before"))
	pause := bulkRequest(t, job.BulkPauseJobs, "labels.team = a")
	pause.Options.Note = "outage"
	if page := changeAll(t, r, pause, false); page.Total.Changed != 3 {
		t.Fatalf("%+v", page)
	}
	f.now = f.now.Add(time.Second)
	must(r.Resume(t.Context(), key("a001"), false))
	f.now = f.now.Add(time.Second)
	must(r.Pause(t.Context(), key("a001"), "outage")) // paused again, by hand
	must(r.Pause(t.Context(), key("a002"), "another reason"))
	resume := bulkRequest(t, job.BulkResumeJobs, "id:*")
	resume.Options.PauseID, resume.RequestID = pause.RequestID, "op-2"
	if page := changeAll(t, r, resume, false); page.Total.Changed != 1 {
		t.Errorf("%+v", page)
	}
	for i, want := range []bool{true, true, true, false} {
		if got := f.records[key(fmt.Sprintf("a%03d", i))].State.Paused; got != want {
			t.Errorf("job %d: paused is %v", i, got)
		}
	}
}

func TestRunsAreCancelledByFilter(t *testing.T) {
	f, r := newFake(t)
	addJobs(t, r, 3)
	key := func(id string) job.Key { return job.Key{Namespace: "default", ID: id} }
	f.lease(key("a000"), 7)
	if _, _, err := r.RunJob(t.Context(), key("a000"), job.RequestManualRun{RequestID: "waits"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.RunJob(t.Context(), key("a001"), job.RequestManualRun{RequestID: "due"}); err != nil {
		t.Fatal(err)
	}
	planned := f.records[key("a002")].State
	page := changeAll(t, r, bulkRequest(t, job.BulkCancelRuns, "labels.team = a"), true)
	if page.Total != (job.BulkCounts{Matched: 3, Changed: 3}) || len(f.cancelled) != 1 || f.cancelled[0] != 7 {
		t.Errorf("%+v, cancelled %v", page, f.cancelled)
	}
	if s := f.records[key("a000")].State; !s.Cancel || s.Pending != "" {
		t.Errorf("live: %+v", s)
	}
	if s := f.records[key("a002")].State; s.Revision != planned.Revision {
		t.Errorf("planned: %+v", s)
	}
}

func TestDeadLettersAreChangedByFilter(t *testing.T) {
	for _, action := range []job.BulkAction{job.BulkRedriveDeadLetters, job.BulkDiscardDeadLetters} {
		t.Run(action.String(), func(t *testing.T) {
			f, r := newFake(t)
			for i := range 40 {
				key := hourly(t, r, fmt.Sprintf("j%02d", i), nil)
				id := job.RecordID(f.bury(key, 0, []string{"a", "b"}[i%2]))
				state := f.children[id]
				state.LastFinished, state.LastError = f.now, []string{"refused", "timeout"}[i%2]
				f.children[id] = state
				letter := f.letters[id]
				letter.Stored = &job.Record{Definition: f.records[key].Definition, State: state}
				f.letters[id] = letter
			}
			q := bulkRequest(t, action, `last_error = "timeout"`)
			page := changeAll(t, r, q, true)
			if page.Total != (job.BulkCounts{Matched: 20, Changed: 20}) || len(f.letters) != 20 {
				t.Errorf("%+v, %d letters", page, len(f.letters))
			}
			want := map[job.BulkAction]int{job.BulkRedriveDeadLetters: 20}[action]
			if n := f.countNotices(job.RunRedriven); n != want {
				t.Errorf("%d redriven", n)
			}
		})
	}
}

// TestChangesOfNothingLeaveNothing: who asks again and again does not fill Redis.
func TestChangesOfNothingLeaveNothing(t *testing.T) {
	f, r := newFake(t)
	addJobs(t, r, 1)
	if page := changeAll(t, r, bulkRequest(t, job.BulkRunJobs, "id = none"), false); page.Total.Matched != 0 || len(f.cells) != 0 {
		t.Errorf("%+v, cells %v", page, f.cells)
	}
}

func TestRefusedMatchesAreCountedByReason(t *testing.T) {
	f, r := newFake(t)
	addJobs(t, r, 3)
	f.meddle = func() { delete(f.records, job.Key{Namespace: "default", ID: "a001"}) }
	page, err := r.ChangeMatching(t.Context(), bulkRequest(t, job.BulkRunJobs, "labels.team = a"))
	if err != nil || page.Total != (job.BulkCounts{Matched: 3, Changed: 2, Refused: 1}) {
		t.Fatalf("%+v %v", page, err)
	}
	if len(page.Refusals) != 1 || page.Refusals[0].Reason != job.RefusedGone ||
		page.Refusals[0].Names[0].Record != "default/a001" {
		t.Errorf("%+v", page.Refusals)
	}
	if len(page.Names) != 3 {
		t.Errorf("%v", page.Names)
	}
}

func TestInvalidBulkRequestsAreRefused(t *testing.T) {
	_, r := newFake(t)
	addJobs(t, r, 1)
	for field, change := range map[string]func(q *job.BulkRequest){
		"filter":       func(q *job.BulkRequest) { q.Filter.Condition = nil },
		"request_id":   func(q *job.BulkRequest) { q.RequestID = "" },
		"page_token":   func(q *job.BulkRequest) { q.DryRun, q.Token = true, "p1" },
		"confirmation": func(q *job.BulkRequest) { q.DryRun, q.Confirmation = true, "x" },
		"note":         func(q *job.BulkRequest) { q.Options.Note = strings.Repeat("x", job.MaxNote+1) },
		"pause_id":     func(q *job.BulkRequest) { q.Options.PauseID = "a b" },
	} {
		q := bulkRequest(t, job.BulkPauseJobs, "id:*")
		change(&q)
		if _, err := r.ChangeMatching(t.Context(), q); violated(err) != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	q := bulkRequest(t, job.BulkPauseJobs, "id:*")
	q.Token = "p1"
	if _, err := r.ChangeMatching(t.Context(), q); reasonOf(err) != job.ReasonBulkChangeUnknown {
		t.Errorf("a token of no change: %v", err)
	}
	q.Token = ""
	changeAll(t, r, q, false)
	q.Filter.Condition = bulkRequest(t, 0, "queue = qa").Filter.Condition
	if _, err := r.ChangeMatching(t.Context(), q); violated(err) != "request_id" {
		t.Errorf("the id of another change: %v", err)
	}
}
