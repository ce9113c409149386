package registry

import (
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

var ping = job.Key{Namespace: "default", ID: "ping"}

func TestCreateStoresTheFirstState(t *testing.T) {
	f, r := newFake(t)
	got, err := r.Create(t.Context(), definition("ping"), "r1")
	if err != nil {
		t.Fatal(err)
	}
	d, s := got.Definition, got.State
	if d.Generation != 1 || d.Revision != 1 || d.AnchorMS != f.now || d.CreatedMS != f.now || d.UpdatedMS != f.now || d.CreateRequestID != "r1" {
		t.Errorf("bookkeeping %+v", d)
	}
	if want := f.now + 60_000; s.Due != want || s.Nominal != want || got.IndexMS != want || s.Revision == 0 {
		t.Errorf("state %+v index %d, want due %d", s, got.IndexMS, want)
	}
	if len(f.nudged) != 1 || len(f.notices) != 1 || f.notices[0].Kind != job.JobCreated {
		t.Errorf("nudges %v notices %v", f.nudged, f.notices)
	}
}

func TestCreateIsIdempotent(t *testing.T) {
	tests := []struct {
		name          string
		first, second string
		edit          func(*job.Definition)
		exists        bool
	}{
		{"same request", "r1", "r1", nil, false},
		{"no request ids", "", "", nil, false},
		{"first without", "", "r2", nil, false},
		{"second without", "r1", "", nil, false},
		{"another request", "r1", "r2", nil, true},
		{"another definition", "r1", "r1", func(d *job.Definition) { d.Handler = "exec" }, true},
		{"another schedule", "", "", func(d *job.Definition) { d.Schedule.Every = time.Hour }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, r := newFake(t)
			first, err := r.Create(t.Context(), definition("ping"), tt.first)
			if err != nil {
				t.Fatal(err)
			}
			f.now += 1000
			d := definition("ping")
			if tt.edit != nil {
				tt.edit(&d)
			}
			second, err := r.Create(t.Context(), d, tt.second)
			var exists *job.ExistsError
			if errors.As(err, &exists) != tt.exists {
				t.Fatalf("err %v, want exists %v", err, tt.exists)
			}
			if !tt.exists && second.Definition.CreatedMS != first.Definition.CreatedMS {
				t.Errorf("answer %+v, want that of the first", second.Definition)
			}
		})
	}
}

func TestCreateReplayAfterAnEditAnswersTheJob(t *testing.T) {
	_, r := newFake(t)
	mustCreate(t, r, "ping", "r1")
	mustUpdate(t, r, func(d *job.Definition) { d.Handler = "exec" })
	got, err := r.Create(t.Context(), definition("ping"), "r1")
	if err != nil || got.Definition.Handler != "exec" {
		t.Errorf("got %s, %v", got.Definition.Handler, err)
	}
}

func TestCreateOfADeletedLiveJobIsBusy(t *testing.T) {
	f, r := newFake(t)
	mustCreate(t, r, "ping", "")
	f.lease(ping, 7)
	if err := r.Delete(t.Context(), ping, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create(t.Context(), definition("ping"), ""); !errors.Is(err, job.ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	if _, err := r.Get(t.Context(), ping); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("get: %v, want ErrNotFound", err)
	}
	if _, err := r.Pause(t.Context(), ping, ""); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("pause: %v, want ErrNotFound", err)
	}
}

func TestCreateMakesIDs(t *testing.T) {
	_, r := newFake(t)
	a, errA := r.Create(t.Context(), definition(""), "r1")
	again, errAgain := r.Create(t.Context(), definition(""), "r1")
	b, errB := r.Create(t.Context(), definition(""), "")
	c, errC := r.Create(t.Context(), definition(""), "")
	if err := errors.Join(errA, errAgain, errB, errC); err != nil {
		t.Fatal(err)
	}
	if a.Definition.ID != again.Definition.ID || b.Definition.ID == c.Definition.ID || a.Definition.ID == b.Definition.ID {
		t.Errorf("ids %s %s %s %s", a.Definition.ID, again.Definition.ID, b.Definition.ID, c.Definition.ID)
	}
}

func TestRefusedCreationsStoreNothing(t *testing.T) {
	f, r := newFake(t)
	bad := definition("ping")
	bad.Handler, bad.Timeout = "", -time.Second
	_, err := r.Create(t.Context(), bad, strings.Repeat("x", 65))
	if field := violated(err); field != "request_id" {
		t.Errorf("got %v", err)
	}
	_, err = r.Create(t.Context(), bad, "")
	if field := violated(err); field != "job.handler job.timeout" {
		t.Errorf("got %v", err)
	}
	f.err = job.ErrNoMemory
	if _, err = r.Create(t.Context(), definition("ping"), ""); !errors.Is(err, job.ErrNoMemory) {
		t.Errorf("got %v", err)
	}
	if len(f.records) != 0 {
		t.Errorf("stored %v", f.records)
	}
}

func TestCreateBatch(t *testing.T) {
	f, r := newFake(t)
	var requests []job.CreateRequest
	for i := range MaxBatch {
		requests = append(requests, job.CreateRequest{Definition: definition(fmt.Sprintf("j%03d", i))})
	}
	requests[10].Definition.Handler = ""
	requests[20] = requests[19]
	requests[30] = requests[29]
	requests[30].Definition.Handler = "exec"
	answers := r.CreateBatch(t.Context(), requests)
	for i, a := range answers {
		var invalid *job.InvalidError
		var exists *job.ExistsError
		switch {
		case i == 10 && errors.As(a.Err, &invalid), i == 30 && errors.As(a.Err, &exists):
		case a.Err != nil:
			t.Errorf("request %d: %v", i, a.Err)
		case a.Record.Definition.ID != requests[i].Definition.ID:
			t.Errorf("request %d answered with %s", i, a.Record.Definition.ID)
		}
	}
	if len(f.calls) != fakeShards || len(f.records) != MaxBatch-3 {
		t.Errorf("%d scripts, %d records", len(f.calls), len(f.records))
	}
	for _, a := range r.CreateBatch(t.Context(), append(requests, requests[0])) {
		if violated(a.Err) != "requests" {
			t.Fatalf("1,001 requests: %v", a.Err)
		}
	}
}

// TestOneIDSeveralTimesInABatch: each request for it has the answer that it would have
// had by itself, one after the other.
func TestOneIDSeveralTimesInABatch(t *testing.T) {
	f, r := newFake(t)
	bad, other := definition("ping"), definition("ping")
	bad.Handler, other.Handler = "", "exec"
	all := []job.CreateRequest{{Definition: bad}, {Definition: bad}, {Definition: definition("ping")}, {Definition: other}, {Definition: definition("ping")}}
	told := func(requests []job.CreateRequest) (out []string) {
		for _, a := range r.CreateBatch(t.Context(), requests) {
			var exists *job.ExistsError
			switch {
			case violated(a.Err) == "job.handler":
				out = append(out, "invalid")
			case errors.As(a.Err, &exists):
				out = append(out, "exists")
			case a.Err != nil:
				out = append(out, a.Err.Error())
			default:
				out = append(out, a.Record.Definition.Handler)
			}
		}
		return out
	}
	want := []string{"invalid", "invalid", definition("ping").Handler, "exists", definition("ping").Handler}
	if got := told(all); !slices.Equal(got, want) || len(f.records) != 1 {
		t.Errorf("got %q and %d records, want %q", got, len(f.records), want)
	}
	if got := told(all[3:]); !slices.Equal(got, want[3:]) {
		t.Errorf("of one that is there: %q, want %q", got, want[3:])
	}
	f.err = job.ErrNoMemory
	if got := told(all[2:]); !slices.Equal(got, slices.Repeat([]string{job.ErrNoMemory.Error()}, 3)) {
		t.Errorf("without a store: %q", got)
	}
}

func TestPreview(t *testing.T) {
	_, r := newFake(t)
	got, err := r.Preview(t.Context(), job.PreviewRequest{
		Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
		Backoff:  new(backoff.DefaultRecurring()),
		Count:    2,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Times) != 2 || !got.Times[0].Nominal.Equal(start.Add(time.Minute)) || !got.Times[1].Due.Equal(start.Add(2*time.Minute)) {
		t.Errorf("times %v", got.Times)
	}
	if s := fmt.Sprint(got.Intervals); s != "[1m0s 2m0s 4m0s 8m0s 16m0s 32m0s]" {
		t.Errorf("intervals %s", s)
	}
	// There is no job with a planned run: the schedule's first one fails first.
	if len(got.Projected) != 2 || !got.Projected[0].Equal(start.Add(time.Minute)) || !got.Projected[1].Equal(start.Add(3*time.Minute)) {
		t.Errorf("projected %v", got.Projected)
	}
	for field, p := range map[string]job.PreviewRequest{
		"count":                      {Count: 1001},
		"schedule.interval.every":    {Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Second}},
		"schedule.cron.time_zone":    {Schedule: schedule.Spec{Kind: schedule.KindCron, Cron: []string{"* * * * *"}, TimeZone: "X/Y"}},
		"schedule.cron.expressions":  {Schedule: schedule.Spec{Kind: schedule.KindCron}},
		"backoff_policy.stale_halve": {Backoff: staleHalve()},
	} {
		if _, err := r.Preview(t.Context(), p); violated(err) != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

// violated lists the fields of an InvalidError.
func violated(err error) string {
	var invalid *job.InvalidError
	if !errors.As(err, &invalid) {
		return ""
	}
	var fields []string
	for _, v := range invalid.Violations {
		fields = append(fields, v.Field)
	}
	return strings.Join(fields, " ")
}

func TestUnconfirmedCreationIsReported(t *testing.T) {
	f, r := newFake(t)
	f.unconfirmed = true
	if _, err := r.Create(t.Context(), definition("a"), ""); !errors.Is(err, job.ErrDurability) {
		t.Fatal(err)
	}
	if len(f.nudged) != 1 || len(f.notices) != 1 || f.notices[0].Kind != job.JobCreated {
		t.Errorf("the holder heard of %d lanes, observers of %+v", len(f.nudged), f.notices)
	}
}

func TestAnIdThatComesAndGoesIsAConflict(t *testing.T) {
	f, r := newFake(t)
	f.vanishing = true
	if _, err := r.Create(t.Context(), definition("a"), ""); !errors.Is(err, job.ErrConflict) {
		t.Error(err)
	}
}
