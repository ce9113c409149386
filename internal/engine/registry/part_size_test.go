package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// largeReads is a store that notes how many bytes of payloads one call returns.
type largeReads struct {
	Store
	reads []int
}

func (s *largeReads) note(records []*job.Record) {
	sum := 0
	for _, r := range records {
		if r != nil {
			sum += len(r.Definition.Payload)
		}
	}
	s.reads = append(s.reads, sum)
}

func (s *largeReads) Get(ctx context.Context, keys []job.Key) ([]*job.Record, error) {
	records, err := s.Store.Get(ctx, keys)
	s.note(records)
	return records, err
}

func (s *largeReads) GetRecords(ctx context.Context, shard int, ids []job.RecordID) ([]*job.Record, error) {
	records, err := s.Store.GetRecords(ctx, shard, ids)
	s.note(records)
	return records, err
}

func (s *largeReads) Restore(ctx context.Context, shard int, jobs []job.Restoration) job.CreateReply {
	reply := s.Store.Restore(ctx, shard, jobs)
	var records []*job.Record
	for _, result := range reply.Results {
		records = append(records, result.Existing)
	}
	s.note(records)
	return reply
}

// fullQuota is a quota that grants nothing.
type fullQuota struct{}

func (fullQuota) Limited() bool                                          { return true }
func (fullQuota) Limit(string) int                                       { return 1 }
func (fullQuota) Reserve(context.Context, string, int, int) (int, error) { return 0, nil }
func (fullQuota) Take(context.Context, string, int)                      {}
func (fullQuota) Return(context.Context, string, int)                    {}
func (fullQuota) Full(string) bool                                       { return true }

// TestLargeJobsAreReadInParts: calls that name many jobs in small requests have the payloads of a few jobs in memory.
func TestLargeJobsAreReadInParts(t *testing.T) {
	const jobs, payload = 200, 250_000
	f, r := newFake(t)
	var keys []job.Key
	var records []job.RecordID
	for i := range jobs {
		id := fmt.Sprintf("job-%03d", i)
		key := hourly(t, r, id, nil)
		records = append(records, job.RecordID(f.bury(key, 0, "q")))
		storeLarge(f, key, payload)
		keys = append(keys, key)
	}
	store, ledger := &largeReads{Store: f}, &largeChanges{Ledger: f}
	r.o.Store, r.o.Ledger, r.o.BulkTime = store, ledger, time.Hour
	backups := make([]job.Backup, jobs)
	for i, key := range keys {
		d := definition(key.ID)
		d.Payload = []byte("other")
		backups[i] = job.Backup{Definition: d}
	}
	all := job.Filter{Namespace: "default"}
	for name, call := range map[string]func() error{
		"restoration": func() error {
			for _, a := range r.Restore(t.Context(), backups, job.ExistingSkip) {
				if a.Err != nil || a.Outcome != job.RestoreSkipped {
					return fmt.Errorf("%v, %w", a.Outcome, a.Err)
				}
			}
			return nil
		},
		"dry run of a redrive": func() error {
			b, err := r.RedriveDeadLetters(t.Context(), job.RedriveRequest{Filter: all, Records: records, DryRun: true})
			if b.Done != jobs {
				err = fmt.Errorf("%+v, %w", b, err)
			}
			return err
		},
		"pause of all": func() error { _, err := r.PauseAll(t.Context(), all, "", ""); return err },
		"changes of matches": func() error {
			_, err := r.ChangeMatching(t.Context(), bulkRequest(t, job.BulkRunJobs, "id:job-0*"))
			return err
		},
		"repeated bulk pause": func() error {
			targets := make([]job.BulkTarget, jobs)
			for i, key := range keys {
				targets[i].Record = key.Record()
			}
			c := &bulkChange{Registry: r, BulkRequest: job.BulkRequest{Action: job.BulkPauseJobs}}
			_, err := c.findUnreplaced(t.Context(), targets, true)
			return err
		},
	} {
		store.reads, ledger.sizes = nil, nil
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		most, parts := slices.Max(append(ledger.sizes, store.reads...)), len(ledger.sizes)+len(store.reads)
		if most == 0 || most > partBytes+payload || parts < 5 {
			t.Errorf("%s: %d parts, of up to %d bytes", name, parts, most)
		}
	}
}

// TestExistingJobsAreFoundWithoutDefinitions: a creation beyond a quota asks whether jobs exist, and does not read them.
func TestExistingJobsAreFoundWithoutDefinitions(t *testing.T) {
	f, r := newFake(t)
	var requests []job.CreateRequest
	for i := range 20 {
		id := fmt.Sprint("job-", i)
		storeLarge(f, hourly(t, r, id, nil), 250_000)
		requests = append(requests, job.CreateRequest{Definition: definition(id)})
	}
	requests = append(requests, job.CreateRequest{Definition: definition("another")})
	store := &largeReads{Store: f}
	r.o.Store, r.o.Quota, r.o.ByteQuota = store, fullQuota{}, fullQuota{}
	for _, n := range []int{1, len(requests)} {
		asked := requests[len(requests)-n:]
		_, faults := r.claimQuota(t.Context(), demandsOf(asked))
		last := n - 1
		var full *job.QuotaError
		if !errors.As(faults[last], &full) || slices.ContainsFunc(faults[:last], func(err error) bool { return err != nil }) {
			t.Errorf("%v", faults)
		}
	}
	if len(store.reads) > 0 {
		t.Errorf("reads of %d bytes", store.reads)
	}
}

// largeChanges is a ledger that notes how many bytes of payloads one call returns.
type largeChanges struct {
	Ledger
	sizes []int
}

func (l *largeChanges) SubmitAndWait(ctx context.Context, changes ...job.Change) []job.ChangeResult {
	results := l.Ledger.SubmitAndWait(ctx, changes...)
	sum := 0
	for _, r := range results {
		if r.Record.Definition != nil {
			sum += len(r.Record.Definition.Payload)
		}
	}
	l.sizes = append(l.sizes, sum)
	return results
}

// storeLarge gives a stored job a large payload.
func storeLarge(f *fake, key job.Key, size int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	record := f.records[key]
	d := *record.Definition
	d.Payload = make([]byte, size)
	record.Definition = &d
	f.records[key] = record
}

func demandsOf(requests []job.CreateRequest) []quotaDemand {
	demands := make([]quotaDemand, len(requests))
	for i, q := range requests {
		demands[i] = quotaDemand{key: q.Definition.Key, quotaAmount: quotaAmount{1, 100}}
	}
	return demands
}

// TestPartsBySize: parts grow while records are small, and have few large ones.
func TestPartsBySize(t *testing.T) {
	for _, c := range []struct {
		payload int
		want    []int
	}{
		{0, []int{16, 32, 64, 128, 128}},
		{100_000, []int{16, 32, 41, 41, 41}},
		{partBytes, []int{16, 1, 1, 1, 1}},
	} {
		size := newPartSize()
		var got []int
		for range c.want {
			got = append(got, size.next)
			for range size.next {
				size.note(&job.Definition{Payload: make([]byte, c.payload)})
			}
			size.grow()
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("payloads of %d bytes: %v, want %v", c.payload, got, c.want)
		}
	}
}
