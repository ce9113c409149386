package audittrail

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// slowTrail takes time for each read.
type slowTrail struct {
	*memory
	delay time.Duration
	reads int
	most  int // records of one read
}

func (s *slowTrail) ReadTrail(ctx context.Context, before string, fromMS, toMS unixtime.Milli, n int) ([]job.TrailRecord, string, error) {
	time.Sleep(s.delay)
	records, next, err := s.memory.ReadTrail(ctx, before, fromMS, toMS, n)
	s.reads, s.most = s.reads+1, max(s.most, len(records))
	return records, next, err
}

// TestListsAreBounded: one call examines a thousand records, takes 50 ms or reads 2 MiB, and goes on with the next
// page, whether records match or not.
func TestListsAreBounded(t *testing.T) {
	large := strings.Repeat("x", 10_000)
	for name, c := range map[string]struct {
		delay    time.Duration
		resource string
		reads    int
	}{
		"records": {0, "", 10}, "time": {20 * time.Millisecond, "", 3}, "bytes": {0, large, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &slowTrail{memory: &memory{}, delay: c.delay}
				for i := range 3000 {
					store.records = append(store.records, job.TrailRecord{ID: fmt.Sprintf("%d-0", i+1), AtMS: unixtime.Milli(i + 1),
						Resource: c.resource, Identity: "alice"})
				}
				r := recorder(t, Options{Store: store})
				defer r.Stop(t.Context())
				page, err := r.List(t.Context(), job.TrailFilter{Identity: "nobody"}, MaxPageSize, "")
				if err != nil || len(page.Records) > 0 || page.Next == "" {
					t.Errorf("%d records, next %q (%v)", len(page.Records), page.Next, err)
				}
				if store.reads > c.reads+1 || store.reads < c.reads || store.most > 100 {
					t.Errorf("%d reads of up to %d records, want %d of 100", store.reads, store.most, c.reads)
				}
			})
		})
	}
}

// TestPagesOfAnExportHaveFewBytes: a page of large records ends early and says so, and no record is left out.
func TestPagesOfAnExportHaveFewBytes(t *testing.T) {
	store := &memory{}
	for i := range 1500 {
		store.records = append(store.records, job.TrailRecord{ID: fmt.Sprintf("%d-0", i+1), Resource: strings.Repeat("x", 10_000)})
	}
	r := recorder(t, Options{Store: store})
	defer r.Stop(t.Context())
	after, n := "", 0
	for more := true; more; {
		page, err := r.Read(t.Context(), after, MaxPageSize)
		if err != nil {
			t.Fatal(err)
		}
		bytes := 0
		for _, record := range page.Records {
			bytes += record.Size()
		}
		if bytes > maxReadBytes+scanStep*11_000 {
			t.Errorf("a page of %d bytes", bytes)
		}
		if len(page.Records) < MaxPageSize && !page.More && n+len(page.Records) < len(store.records) {
			t.Fatalf("a page of %d records looks like the last one", len(page.Records))
		}
		n += len(page.Records)
		after, more = page.Records[len(page.Records)-1].ID, page.More
	}
	if n != len(store.records) {
		t.Errorf("%d records, want %d", n, len(store.records))
	}
}
