package trail

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/fermata-io/fermata/internal/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store that may be away.
type memory struct {
	mu      sync.Mutex
	err     error
	records []job.TrailRecord // newest last
	calls   int
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *memory) AppendTrail(_ context.Context, records []job.TrailRecord, _ int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if m.err != nil {
		return m.err
	}
	for _, r := range records {
		r.AtMS = int64(len(m.records) + 1)
		r.ID = fmt.Sprintf("%d-0", r.AtMS)
		m.records = append(m.records, r)
	}
	return nil
}

func (m *memory) ReadTrail(_ context.Context, before string, fromMS, toMS int64, n int) (out []job.TrailRecord, next string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	passed := before == ""
	for i := len(m.records) - 1; i >= 0 && len(out) < n; i-- {
		r := m.records[i]
		if passed && r.AtMS >= fromMS && (toMS == 0 || r.AtMS < toMS) {
			out = append(out, r)
		}
		passed = passed || r.ID == before
	}
	if len(out) == n {
		next = out[n-1].ID
	}
	return out, next, m.err
}

func recorder(t *testing.T, o Options) *Recorder {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRedisAway: no record waits longer than the patience, none blocks its call, what
// finds no place is counted, and what is in line when Redis is back is written.
func TestRedisAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{err: errors.New("away")}
		r := recorder(t, Options{Store: store, Backlog: 150, Patience: 30 * time.Second})
		started := time.Now()
		r.Record(job.TrailRecord{})
		synctest.Wait() // it is being written
		for range 200 {
			r.Record(job.TrailRecord{})
		}
		if time.Since(started) != 0 || testutil.ToFloat64(r.lost) != 50 {
			t.Errorf("%v were spent, %v records are lost", time.Since(started), testutil.ToFloat64(r.lost))
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if lost := testutil.ToFloat64(r.lost); lost != 51 {
			t.Errorf("%v lost after the patience of the first", lost)
		}
		store.fail(nil)
		r.Stop(t.Context())
		if len(store.records) != 150 || testutil.ToFloat64(r.written) != 150 || testutil.ToFloat64(r.lost) != 51 {
			t.Errorf("%d written, %v counted", len(store.records), testutil.ToFloat64(r.written))
		}
		r.Stop(t.Context())
	})
}

// TestStopIsBounded: with Redis away it ends with its context, and says what is lost.
func TestStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recorder(t, Options{Store: &memory{err: errors.New("away")}, Patience: time.Hour})
		for range 3 {
			r.Record(job.TrailRecord{})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r.Stop(ctx)
		if lost := testutil.ToFloat64(r.lost); lost != 3 {
			t.Errorf("%v lost", lost)
		}
	})
}

func TestList(t *testing.T) {
	store := &memory{}
	for i := range 250 {
		resource := fmt.Sprintf("namespaces/n/jobs/j%d", i%10)
		store.records = append(store.records, job.TrailRecord{ID: fmt.Sprintf("%d-0", i+1), AtMS: int64(i + 1), Resource: resource, Identity: "alice"})
	}
	store.records = append(store.records, job.TrailRecord{ID: "251-0", AtMS: 251, Resource: "namespaces/n", Names: []string{"namespaces/n/jobs/j3"}, Identity: "bob"})
	r := recorder(t, Options{Store: store})
	defer r.Stop(t.Context())
	for _, c := range []struct {
		f    job.TrailFilter
		want int
	}{
		{job.TrailFilter{}, 251}, {job.TrailFilter{Identity: "bob"}, 1}, {job.TrailFilter{Resource: "namespaces/n/jobs/j3"}, 26},
		{job.TrailFilter{Resource: "namespaces/n/"}, 251}, {job.TrailFilter{Resource: "namespaces/n"}, 1},
		{job.TrailFilter{FromMS: 100, ToMS: 110}, 10}, {job.TrailFilter{Resource: "namespaces/other/"}, 0},
	} {
		seen, last := 0, int64(1<<62)
		for token := ""; ; {
			page, err := r.List(t.Context(), c.f, 7, token)
			if err != nil {
				t.Fatal(err)
			}
			for _, record := range page.Records {
				if record.AtMS >= last {
					t.Errorf("%+v: %d after %d", c.f, record.AtMS, last)
				}
				last, seen = record.AtMS, seen+1
			}
			if token = page.Next; token == "" {
				break
			}
		}
		if seen != c.want {
			t.Errorf("%+v: %d, want %d", c.f, seen, c.want)
		}
	}
	for _, token := range []string{"+", "1", "1-", "-1", "1-0 COUNT 5", "(1-0", "+1-0", "0-0", "99999999999999999999-0", "1-99999999999999999999"} {
		if _, err := r.List(t.Context(), job.TrailFilter{}, 0, token); err == nil {
			t.Errorf("token %q is taken", token)
		}
	}
}
