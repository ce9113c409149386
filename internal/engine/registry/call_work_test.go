package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// parts is a ledger that notes how many changes come at a time.
type partsOf struct {
	Ledger
	sizes []int
}

func (p *partsOf) SubmitAndWait(ctx context.Context, changes ...job.Change) []job.ChangeResult {
	p.sizes = append(p.sizes, len(changes))
	return p.Ledger.SubmitAndWait(ctx, changes...)
}

// TestBulkCallsEndInTime: a call that changes many jobs ends when it has taken its time, with the
// place to go on from, and the calls that follow leave none out and change none twice.
func TestBulkCallsEndInTime(t *testing.T) {
	f, r := newFake(t)
	for i := range 150 {
		if _, err := r.Create(t.Context(), definition(fmt.Sprintf("job-%03d", i)), ""); err != nil {
			t.Fatal(err)
		}
	}
	noted := &partsOf{Ledger: f}
	r.o.Ledger = noted
	all := job.Filter{Namespace: definition("x").Namespace}
	run := func(call func(token string) (job.Bulk, error)) (calls, done int) {
		t.Helper()
		for token := ""; ; calls++ {
			b, err := call(token)
			if err != nil || b.Refused != 0 {
				t.Fatalf("%+v, %v", b, err)
			}
			if done += b.Done; b.Next == "" {
				return calls + 1, done
			}
			token = b.Next
		}
	}
	pause := func(token string) (job.Bulk, error) { return r.PauseAll(t.Context(), all, "", token) }
	resume := func(token string) (job.Bulk, error) { return r.ResumeAll(t.Context(), all, "", false, token) }
	r.o.BulkTime = time.Nanosecond
	for name, call := range map[string]func(string) (job.Bulk, error){"pause": pause, "resume": resume} {
		if name == "resume" {
			r.o.BulkTime = time.Hour
			run(pause)
			r.o.BulkTime = time.Nanosecond
		}
		noted.sizes = nil
		if calls, done := run(call); calls != 10 || done != 150 || slices.Max(noted.sizes) != firstPartSize {
			t.Errorf("%s: %d jobs by %d calls in parts of %v", name, done, calls, noted.sizes)
		}
		if name == "pause" {
			r.o.BulkTime = time.Hour
			run(resume)
			r.o.BulkTime = time.Nanosecond
		}
	}
	r.o.BulkTime, noted.sizes = time.Hour, nil
	if calls, done := run(pause); calls != 1 || done != 150 || !slices.Equal(noted.sizes, []int{16, 32, 64, 38}) {
		t.Errorf("with time: %d jobs by %d calls in parts of %v", done, calls, noted.sizes)
	}
	// Names have no place to go on from.
	r.o.BulkTime = time.Nanosecond
	var records []job.RecordID
	for i := range 17 {
		records = append(records, job.RecordID(fmt.Sprintf("%s/job-%03d", all.Namespace, i)))
	}
	if _, err := r.RedriveDeadLetters(t.Context(), job.RedriveRequest{Filter: all, Records: records}); !errors.Is(err, job.ErrTooMuchWork) {
		t.Errorf("by names: %v", err)
	}
	if b, err := r.RedriveDeadLetters(t.Context(), job.RedriveRequest{Filter: all, Records: records[:16]}); err != nil || b.Refused != 16 {
		t.Errorf("by few names: %+v, %v", b, err)
	}
}

// failsAfter is a ledger with changes that fail from one of them on, the first of these with an error of its own.
type failsAfter struct {
	Ledger
	left        int
	first, then error
}

func (l *failsAfter) SubmitAndWait(ctx context.Context, changes ...job.Change) []job.ChangeResult {
	good := changes[:min(l.left, len(changes))]
	l.left -= len(good)
	results := l.Ledger.SubmitAndWait(ctx, good...)
	for range len(changes) - len(good) {
		results = append(results, job.ChangeResult{Err: l.first})
		l.first = l.then
	}
	return results
}

// TestPartsOfFailedCallsAreNoted: what a call that changes many jobs has stored before it fails is noted. Where more may be
// stored, the call returns the error after which that is so.
func TestPartsOfFailedCallsAreNoted(t *testing.T) {
	const jobs = 40
	f, r := newFake(t)
	var records []job.RecordID
	for i := range jobs {
		key := hourly(t, r, fmt.Sprintf("job-%02d", i), nil)
		records = append(records, job.RecordID(f.bury(key, 0, "q")))
	}
	noted := []int(nil)
	r.o.NoteStored = func(_ context.Context, changed []job.BulkTarget) { noted = append(noted, len(changed)) }
	all := job.Filter{Namespace: "default"}
	byName := func() error {
		_, err := r.RedriveDeadLetters(t.Context(), job.RedriveRequest{Filter: all, Records: records})
		return err
	}
	pause := func() error { _, err := r.PauseAll(t.Context(), all, "", ""); return err }
	resume := func() error { _, err := r.ResumeAll(t.Context(), all, "", false, ""); return err }
	matching := func() error {
		_, err := r.ChangeMatching(t.Context(), bulkRequest(t, job.BulkRunJobs, "id:*"))
		return err
	}
	for _, c := range []struct {
		name        string
		call        func() error
		time        time.Duration
		good        int
		first, then error
		want        error
		noted       []int
	}{
		{"out of time", byName, time.Nanosecond, jobs, nil, nil, job.ErrTooMuchWork, []int{16}},
		{"redriven before", byName, time.Nanosecond, jobs, nil, nil, job.ErrTooMuchWork, nil},
		{"no memory", pause, time.Hour, 20, job.ErrNoMemory, job.ErrNoMemory, job.ErrNoMemory, []int{16, 4}},
		{"no memory, others unknown", resume, time.Hour, 10, job.ErrNoMemory, job.ErrUnavailable, job.ErrUnavailable, []int{10}},
		{"nothing but an unknown one", resume, time.Hour, 0, job.ErrUnavailable, job.ErrNoMemory, job.ErrUnavailable, []int{0}},
		{"nothing at all", pause, time.Hour, 0, job.ErrNoMemory, job.ErrNoMemory, job.ErrNoMemory, nil},
		{"a page of a filter", matching, time.Hour, 20, job.ErrNoMemory, job.ErrNoMemory, job.ErrNoMemory, []int{16, 4}},
	} {
		r.o.BulkTime, noted = c.time, nil
		r.o.Ledger = &failsAfter{Ledger: f, left: c.good, first: c.first, then: c.then}
		if err := c.call(); !errors.Is(err, c.want) || !slices.Equal(noted, c.noted) {
			t.Errorf("%s: %v, noted %v, want %v", c.name, err, noted, c.noted)
		}
	}
}

// TestChangesAreNoted: only jobs, dead letters and runs that a call changes are noted for it, and each once.
func TestChangesAreNoted(t *testing.T) {
	f, r := newFake(t)
	var letters []job.RecordID
	for i := range 4 {
		letters = append(letters, job.RecordID(f.bury(hourly(t, r, fmt.Sprintf("job-%d", i), nil), 0, "q")))
	}
	all := job.Filter{Namespace: "default"}
	redrive := func(records ...job.RecordID) func() error {
		return func() error {
			_, err := r.RedriveDeadLetters(t.Context(), job.RedriveRequest{Filter: all, Records: records})
			return err
		}
	}
	missing := job.Key{Namespace: "default", ID: "job-3"}.Record().Letter(1)
	for _, c := range []struct {
		name string
		call func() error
		want []job.RecordID
	}{
		{"one", redrive(letters[1]), letters[1:2]},
		{"of some redriven and missing ones", redrive(letters[0], letters[1], missing, letters[2]), []job.RecordID{letters[0], letters[2]}},
		{"those that are left", redrive(), letters[3:]},
		{"none", redrive(letters...), nil},
		{"a pause of all jobs", func() error { _, err := r.PauseAll(t.Context(), all, "", ""); return err },
			[]job.RecordID{"default/job-0", "default/job-1", "default/job-2", "default/job-3"}},
		{"a pause of paused jobs", func() error { _, err := r.PauseAll(t.Context(), all, "", ""); return err }, nil},
	} {
		var noted []job.RecordID
		r.o.NoteStored = func(_ context.Context, changed []job.BulkTarget) {
			for _, target := range changed {
				noted = append(noted, target.Record)
			}
		}
		err := c.call()
		slices.Sort(noted)
		if err != nil || !slices.Equal(noted, c.want) {
			t.Errorf("%s: %v, noted %q, want %q", c.name, err, noted, c.want)
		}
	}
}

// TestRepeatsDoNotMultiplyALargeJob: a batch may name one job in each of its requests, and only some of these have its
// payload.
func TestRepeatsDoNotMultiplyALargeJob(t *testing.T) {
	f, r := newFake(t)
	large := definition("large")
	large.Payload = make([]byte, 200_000)
	if _, err := r.Create(t.Context(), large, "first"); err != nil {
		t.Fatal(err)
	}
	record := f.records[large.Key]
	edited := *record.Definition
	edited.Revision, edited.Priority = 2, 7
	record.Definition = &edited
	f.records[large.Key] = record
	requests := []job.CreateRequest{{Definition: large, RequestID: "first"}}
	for range 99 {
		requests = append(requests, job.CreateRequest{Definition: definition("large"), RequestID: "first"})
	}
	for range 2 { // in both orders
		bytes := 0
		for i, answer := range r.CreateBatch(t.Context(), requests) {
			if answer.Err != nil || answer.Record.Definition.Key != large.Key {
				t.Fatalf("request %d: %+v", i, answer)
			}
			if got, want := len(answer.Record.Definition.Payload), len(requests[i].Definition.Payload); got > want+sparePayload {
				t.Errorf("request %d with %d bytes is answered with %d", i, want, got)
			}
			bytes += len(answer.Record.Definition.Payload)
		}
		if bytes > len(large.Payload)+sparePayload {
			t.Errorf("the answers have %d bytes", bytes)
		}
		slices.Reverse(requests)
	}
}

// TestPagesOfLongDefinitionsEnd: labels and schedules of jobs count for a page as payloads do.
func TestPagesOfLongDefinitionsEnd(t *testing.T) {
	f, r := newFake(t)
	labels := map[string]string{}
	for i := range 32 {
		labels[fmt.Sprint("label-", i)] = strings.Repeat("x", 250)
	}
	for i := range MaxPageSize {
		key := hourly(t, r, fmt.Sprintf("job-%04d", i), nil)
		record := f.records[key]
		long := *record.Definition
		long.Labels, long.Schedule.Exclude.Dates = labels, slices.Repeat([]string{"2026-12-24/2027-01-02"}, 400)
		record.Definition = &long
		f.records[key] = record
	}
	page, err := r.List(t.Context(), job.Filter{Namespace: "default"}, MaxPageSize, "")
	if err != nil || len(page.Records) == 0 || page.Next == "" {
		t.Fatalf("%d jobs, next %q, %v", len(page.Records), page.Next, err)
	}
	if bytes := sizeOfRecords(page.Records); bytes > pageBytes+page.Records[0].ResponseSize() {
		t.Errorf("a page of %d bytes", bytes)
	}
}

// hardlyEver excludes all but a minute of each day, minute by minute: no expression excludes two in a row.
var hardlyEver = []string{"*/2 * * * *", "1-59/2 0-22 * * *", "1-57/2 23 * * *"}

// TestAnUpdateThatOthersKeepChangingEnds: the tries of one edit share the work of a call.
func TestAnUpdateThatOthersKeepChangingEnds(t *testing.T) {
	f, r := newFake(t)
	dear := definition("j")
	dear.Schedule = schedule.Spec{Kind: schedule.KindCron, TimeZone: "Europe/Berlin", Cron: slices.Repeat([]string{"* * * * *"}, 16),
		Exclude: schedule.Exclusions{Cron: append(slices.Repeat([]string{"1 1 29 2 *"}, 13), hardlyEver...)}}
	if _, err := r.Create(t.Context(), dear, ""); err != nil {
		t.Fatal(err)
	}
	tries := 0
	edit := job.UpdateRequest{Key: dear.Key, Merge: func(d job.Definition) (job.Definition, error) {
		tries++
		f.meddle = func() { // whenever it is about to be stored
			record := f.records[dear.Key]
			other := *record.Definition
			other.Revision++
			record.Definition = &other
			f.records[dear.Key] = record
		}
		d.Handler = fmt.Sprint("h", tries)
		return d, nil
	}}
	if _, err := r.Update(t.Context(), edit); !errors.Is(err, job.ErrConflict) {
		t.Errorf("%v", err)
	}
	if tries == 0 || tries >= mergeTries {
		t.Errorf("%d tries with a schedule that takes the work of a call", tries)
	}
	f.meddle = nil
	dear.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"5 4 * * *"}}
	if _, err := r.Update(t.Context(), job.UpdateRequest{Key: dear.Key, Merge: func(d job.Definition) (job.Definition, error) {
		d.Schedule = dear.Schedule
		return d, nil
	}}); err != nil {
		t.Fatal(err)
	}
	tries = 0
	if _, err := r.Update(t.Context(), edit); !errors.Is(err, job.ErrConflict) || tries != mergeTries {
		t.Errorf("%d tries with a usual schedule, %v", tries, err)
	}
}

// TestPreviewsEnd: those of schedules that exclude nearly everything have fewer times, and those that people
// have are whole.
func TestPreviewsEnd(t *testing.T) {
	_, r := newFake(t)
	preview := func(s schedule.Spec, b *backoff.Recurring) job.Preview {
		t.Helper()
		p, err := r.Preview(t.Context(), job.PreviewRequest{Schedule: s, Count: MaxPreview, Backoff: b})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	hardly := schedule.Exclusions{Cron: hardlyEver}
	dear := preview(schedule.Spec{Kind: schedule.KindCron, Cron: []string{"* * * * *"}, Exclude: hardly}, nil)
	if n := len(dear.Times); n < 10 || n > maxCallWork/1440 {
		t.Errorf("%d times of which 1,439 others stand before each", n)
	}
	office := schedule.Exclusions{Windows: []string{"sat,sun", "18:00-08:00"}, Dates: []string{"01-01"}}
	for name, spec := range map[string]schedule.Spec{
		"cron":     {Kind: schedule.KindCron, Cron: []string{"*/5 8-17 * * MON-FRI"}, TimeZone: "Europe/Berlin", Exclude: office},
		"interval": {Kind: schedule.KindInterval, Every: 10 * time.Minute, TimeZone: "Europe/Berlin", Exclude: office},
	} {
		policy := backoff.DefaultRecurring()
		p := preview(spec, &policy)
		if len(p.Times) != MaxPreview || spec.Kind == schedule.KindInterval && len(p.Projected) != MaxPreview {
			t.Errorf("%s: %d times, %d projected", name, len(p.Times), len(p.Projected))
		}
	}
	policy := backoff.DefaultRecurring()
	policy.Disabled = true
	all := preview(schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute, Exclude: hardly}, &policy)
	if n := len(all.Projected); n < 5 || n == MaxPreview {
		t.Errorf("%d projected times of a schedule that excludes nearly all", n)
	}
	heavy := schedule.Exclusions{Cron: slices.Repeat([]string{"1 1 29 2 *"}, 16)}
	for i := range 400 {
		heavy.Dates = append(heavy.Dates, time.Unix(1_000_000_000, 0).AddDate(0, 0, i).UTC().Format(time.DateOnly))
	}
	slow := preview(schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute, TimeZone: "Europe/Berlin", Exclude: heavy}, &policy)
	if n := len(slow.Projected); n < 50 || n == MaxPreview {
		t.Errorf("%d projected times of a schedule with many exclusions", n)
	}
}
