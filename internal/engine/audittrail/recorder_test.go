package audittrail

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store that may be away.
type memory struct {
	mu      sync.Mutex
	err     error
	lost    error             // of appends that take effect
	records []job.TrailRecord // newest last
	head    job.TrailHead
	trims   []job.TrailTrim
	exports map[string]job.TrailExport
	now     unixtime.Milli
	before  func() // each append

	beforeSave func() // of an export
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *memory) TrailState(context.Context) (job.TrailState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := job.TrailState{Head: m.head, NowMS: max(m.now, 1)}
	if n := len(m.records); n > 0 {
		state.OldestID, state.OldestSeq, state.Newest = m.records[0].ID, m.records[0].Seq, m.records[n-1]
		state.OldestBytes = m.records[0].Seq * 100
	}
	for _, e := range m.exports {
		state.Exports = append(state.Exports, e)
	}
	return state, m.err
}

func (m *memory) AppendTrail(_ context.Context, head job.TrailHead, records []job.TrailRecord, trim job.TrailTrim) (bool, error) {
	if m.before != nil {
		m.before()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return false, m.err
	}
	if head.Raw != m.head.Raw {
		return false, nil
	}
	last := records[len(records)-1]
	m.records, m.trims = append(m.records, records...), append(m.trims, trim)
	m.head = job.TrailHead{Seq: last.Seq, Hash: last.Hash, Bytes: 100 * last.Seq, Raw: fmt.Sprintf("%d %x", last.Seq, last.Hash)}
	if trim.Before != "" {
		m.records = slices.DeleteFunc(m.records, func(r job.TrailRecord) bool { return job.CompareTrailIDs(r.ID, trim.Before) < 0 })
	} else {
		m.records = m.records[max(0, len(m.records)-int(trim.Keep)):]
	}
	err := m.lost
	m.lost = nil
	return err == nil, err
}

func (m *memory) ReadTrailFrom(_ context.Context, after string, n int) (out []job.TrailRecord, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.records {
		if job.CompareTrailIDs(r.ID, after) > 0 && len(out) < n {
			out = append(out, r)
		}
	}
	return out, m.err
}

func (m *memory) SaveTrailExport(_ context.Context, e, was job.TrailExport) (done bool, err error) {
	if m.beforeSave != nil {
		m.beforeSave()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.exports == nil {
		m.exports = map[string]job.TrailExport{}
	}
	if m.exports[e.Name] != was {
		return false, m.err
	}
	m.exports[e.Name] = e
	return true, m.err
}

func (m *memory) DropTrailExport(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.exports, name)
	return m.err
}

func (m *memory) ReadTrail(_ context.Context, before string, fromMS, toMS unixtime.Milli, n int) (out []job.TrailRecord, next string, err error) {
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

// TestRecordsAreBoundedDuringAnOutage: no record waits longer than the patience, none blocks its call, what
// finds no place is counted, and what is in line when Redis is back is written.
func TestRecordsAreBoundedDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{err: errors.New("away")}
		r := recorder(t, Options{Store: store, QueueSize: 150, WriteTimeout: 30 * time.Second})
		started := time.Now()
		r.Record(job.TrailRecord{}, job.TrailPlace{})
		synctest.Wait() // it is being written
		for range 200 {
			r.Record(job.TrailRecord{}, job.TrailPlace{})
		}
		if time.Since(started) != 0 || testutil.ToFloat64(r.lostRecords) != 50 {
			t.Errorf("%v were spent, %v records are lost", time.Since(started), testutil.ToFloat64(r.lostRecords))
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if lost := testutil.ToFloat64(r.lostRecords); lost != 51 {
			t.Errorf("%v lost after the patience of the first", lost)
		}
		store.fail(nil)
		r.Stop(t.Context())
		// One says what was lost.
		if len(store.records) != 151 || testutil.ToFloat64(r.writtenRecords) != 151 || testutil.ToFloat64(r.lostRecords) != 51 {
			t.Errorf("%d written, %v counted", len(store.records), testutil.ToFloat64(r.writtenRecords))
		}
		r.Stop(t.Context())
	})
}

// TestFrequentCallsShareWrites: a record of a quiet node is written at once, those of the next milliseconds together.
func TestFrequentCallsShareWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		r := recorder(t, Options{Store: store})
		writes := func(records, want int) {
			t.Helper()
			synctest.Wait()
			store.mu.Lock()
			defer store.mu.Unlock()
			if len(store.records) != records || len(store.trims) != want {
				t.Errorf("%d records by %d writes, want %d by %d", len(store.records), len(store.trims), records, want)
			}
		}
		r.Record(job.TrailRecord{}, job.TrailPlace{})
		writes(1, 1)
		for range 40 {
			time.Sleep(100 * time.Microsecond)
			r.Record(job.TrailRecord{}, job.TrailPlace{})
		}
		writes(1, 1)
		time.Sleep(appendPause)
		writes(41, 2)
		time.Sleep(appendPause)
		r.Record(job.TrailRecord{}, job.TrailPlace{})
		writes(42, 3)
		r.Record(job.TrailRecord{}, job.TrailPlace{})
		started := time.Now()
		r.Stop(t.Context())
		if writes(43, 4); time.Since(started) != 0 {
			t.Errorf("Stop took %v", time.Since(started))
		}
	})
}

// TestStopIsBounded: without Redis it ends with its context, and logs what is lost.
func TestStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recorder(t, Options{Store: &memory{err: errors.New("away")}, WriteTimeout: time.Hour})
		for range 3 {
			r.Record(job.TrailRecord{}, job.TrailPlace{})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r.Stop(ctx)
		if lost := testutil.ToFloat64(r.lostRecords); lost != 3 {
			t.Errorf("%v lost", lost)
		}
	})
}

func TestList(t *testing.T) {
	store := &memory{}
	for i := range 250 {
		resource := fmt.Sprintf("namespaces/n/jobs/j%d", i%10)
		store.records = append(store.records, job.TrailRecord{ID: fmt.Sprintf("%d-0", i+1), AtMS: unixtime.Milli(i + 1), Resource: resource, Identity: "alice"})
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
				if record.AtMS >= unixtime.Milli(last) {
					t.Errorf("%+v: %d after %d", c.f, record.AtMS, last)
				}
				last, seen = int64(record.AtMS), seen+1
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
