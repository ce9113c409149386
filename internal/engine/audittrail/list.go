package audittrail

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Bounds of one page.
const (
	DefaultPageSize = 100
	MaxPageSize     = 1000
	// maxScanned is how many records one call examines.
	maxScanned = 5000
)

// isID reports whether a text is the id of a record. Ids serve as page tokens.
func isID(text string) bool {
	ms, seq, _ := strings.Cut(text, "-")
	first, err1 := strconv.ParseUint(ms, 10, 64)
	second, err2 := strconv.ParseUint(seq, 10, 64)
	return err1 == nil && err2 == nil && first|second != 0
}

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
	page := job.TrailPage{Next: token}
	for looked := 0; looked < maxScanned; {
		records, next, err := r.options.Store.ReadTrail(ctx, page.Next, f.FromMS, f.ToMS, max(size, DefaultPageSize))
		if err != nil {
			return job.TrailPage{}, err
		}
		looked, page.Next = looked+len(records), next
		for _, record := range records {
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
	return f.Resource == "" || r.Resource == f.Resource || slices.Contains(r.Names, f.Resource)
}
