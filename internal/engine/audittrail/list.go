package audittrail

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Bounds of one page.
const (
	DefaultPageSize = 100
	MaxPageSize     = 1000
	// One call examines up to maxScanned records, some at a time, until it has taken maxScanTime or read maxScanBytes.
	maxScanned   = 1000
	scanStep     = 100
	maxScanTime  = 50 * time.Millisecond
	maxScanBytes = 2 << 20
	// maxReadBytes bounds the records that one Read returns, but for the last scanStep of them.
	maxReadBytes = 4 << 20
)

// isID reports whether a text is the id of a record, as Redis writes it. Ids serve as page tokens. Redis does not take
// every other form of the same number, and positions of exports are stored.
func isID(text string) bool { return text != "" && text == job.NormalizeTrailID(text) }

// List returns up to size records (0: 100), newest first. A page may be short, or
// empty, while Next is set.
func (r *Recorder) List(ctx context.Context, f job.TrailFilter, size int, token string) (job.TrailPage, error) {
	switch {
	case size < 0 || size > MaxPageSize:
		return job.TrailPage{}, job.Invalid("page_size", "is %d, want 1 to %d, or 0 for %d", size, MaxPageSize,
			DefaultPageSize)
	case token != "" && !isID(token):
		return job.TrailPage{}, job.Invalid("page_token", "is not one that ListAuditRecords gave")
	case f.FromMS < 0 || f.ToMS < 0:
		return job.TrailPage{}, job.Invalid("start_time", "start_time and end_time must not be before 1970")
	}
	if size == 0 {
		size = DefaultPageSize
	}
	f = f.Clipped()
	page := job.TrailPage{Next: token}
	began, looked, bytes := time.Now(), 0, 0
	for looked < maxScanned && bytes < maxScanBytes && (looked == 0 || time.Since(began) < maxScanTime) {
		records, next, err := r.options.Store.ReadTrail(ctx, page.Next, f.FromMS, f.ToMS, scanStep)
		if err != nil {
			return job.TrailPage{}, err
		}
		looked, page.Next = looked+len(records), next
		for _, record := range records {
			bytes += record.Size()
			if !matchesFilter(f, record) {
				continue
			}
			page.Records = append(page.Records, record)
			if len(page.Records) == size {
				page.Next = record.ID
				return page, nil
			}
		}
		if next == "" {
			break
		}
	}
	return page, nil
}

func matchesFilter(f job.TrailFilter, r job.TrailRecord) bool {
	if f.Identity != "" && r.Identity != f.Identity {
		return false
	}
	if below, ok := strings.CutSuffix(f.Resource, "/"); ok {
		return r.Resource == below || strings.HasPrefix(r.Resource, f.Resource)
	}
	return f.Resource == "" || r.Resource == f.Resource ||
		slices.Contains(r.Names, job.ClipWithDigest(f.Resource, job.MaxTrailText))
}
