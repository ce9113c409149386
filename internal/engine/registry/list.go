package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Bounds of one page. A page ends early before it exceeds one of them.
const (
	DefaultPageSize = 100
	MaxPageSize     = 1000

	scanRecords     = 5000
	defaultScanTime = 50 * time.Millisecond
	// pageBytes keeps a page of large payloads below the usual limit of a
	// message, 4 MiB.
	pageBytes = 2 << 20
	// filterChunk is how many records one call of the store reads when most may not match.
	filterChunk = 500
)

// List returns up to pageSize jobs (0: DefaultPageSize). Pages may be short or
// empty while Next is set. A job that exists during the whole listing is in it;
// one that is created or deleted meanwhile may be.
func (r *Registry) List(ctx context.Context, f job.Filter, pageSize int, token string) (job.Page, error) {
	if err := validateFilter(f, pageSize); err != nil {
		return job.Page{}, err
	}
	if pageSize == 0 {
		pageSize = DefaultPageSize
	}
	if f.Order != job.OrderNone {
		return r.listInOrder(ctx, f, pageSize, token)
	}
	page, isServed, after, err := r.listFew(ctx, f, pageSize, token)
	if isServed || err != nil {
		return page, err
	}
	if after != "" {
		token = position{Filter: fingerprintFilter("ListJobs", f), Beyond: after}.encodeToken()
	}
	l, err := r.listJobs(f, pageSize, token, "ListJobs",
		func(record job.Record) bool { return matchesFilter(f, &record) })
	if err != nil {
		return job.Page{}, err
	}
	if err := l.fillPage(ctx); err != nil {
		return job.Page{}, err
	}
	return job.Page{Records: l.items, Next: l.next, Incomplete: l.next != "" && len(l.items) < pageSize}, nil
}

// listJobs returns the builder of a page of the wanted jobs of a namespace.
func (r *Registry) listJobs(f job.Filter, size int, token, call string,
	want func(job.Record) bool) (*pageBuilder[job.Record], error) {
	at, err := parseToken(token, call, f)
	if err != nil {
		return nil, err
	}
	return &pageBuilder[job.Record]{
		source: func(ctx context.Context, cursor string, n int) ([]job.Record, string, int, error) {
			if r.walksVisible(&f, cursor) {
				records, next, bytes, ok, err := r.jobsVisible(ctx, f, cursor, n)
				if ok || err != nil {
					return records, next, bytes, err
				}
			}
			records, next, err := r.o.Store.List(ctx, f.Namespace, cursor, n)
			return records, next, sizeOfRecords(records), err
		},
		id:      func(record job.Record) string { return record.Definition.ID },
		want:    func(record job.Record) bool { return want(record) && record.Definition.Record() > at.Beyond },
		weight:  func(record job.Record) int { return record.ResponseSize() },
		size:    size,
		step:    chunkSize(f, size),
		at:      at,
		started: time.Now(), patience: r.o.ScanTime,
	}, nil
}

func sizeOfRecords(records []job.Record) (n int) {
	for i := range records {
		n += records[i].ResponseSize()
	}
	return n
}

func validateFilter(f job.Filter, pageSize int) error {
	v := job.ValidateFilter(f)
	add := func(bad bool, field, description string) {
		if bad {
			v = append(v, job.Violation{Field: field, Description: description})
		}
	}
	add(pageSize < 0 || pageSize > MaxPageSize, "page_size",
		fmt.Sprintf("is %d, want 1 to %d, or 0 for %d", pageSize, MaxPageSize, DefaultPageSize))
	add(f.Status > job.StatusDone, "state", "is unknown")
	if len(v) > 0 {
		return &job.InvalidError{Violations: v}
	}
	return nil
}

// pageBuilder builds one page of a listing.
type pageBuilder[T any] struct {
	// source also returns how many bytes it has read.
	source   func(ctx context.Context, cursor string, n int) ([]T, string, int, error)
	id       func(T) string
	want     func(T) bool
	weight   func(T) int // bytes of the answer
	budget   int         // of weight; 0: pageBytes
	size     int         // of a page
	step     int         // of a chunk
	at       position
	started  time.Time
	patience time.Duration // time after which the page ends early
	scanned  int
	bytes    int
	read     int // bytes of the items that were read, also of those that did not match

	items  []T
	places []position // after each of the items
	next   string     // token of the page that follows
}

// tokenAfter returns the token of what follows the first n items.
func (l *pageBuilder[T]) tokenAfter(n int) string {
	if n >= len(l.items) {
		return l.next
	}
	return l.places[n-1].encodeToken()
}

// position is where a listing continues: at a chunk of the store, or after an id in it if the chunk was not
// used up. Callers can read it: it has an id that they were shown, and a cursor that has no data of jobs.
type position struct {
	Cursor string `json:"c,omitempty"`
	After  string `json:"a,omitempty"`
	// ChunkEnd is the cursor after the chunk. If the next read has another one, the chunk has changed, and After
	// is ignored.
	ChunkEnd string `json:"e,omitempty"`
	Chunk    int    `json:"n,omitempty"`
	Filter   string `json:"f"`
	// Beyond is the name up to which jobs were listed, by name, before the list had too many for that.
	Beyond job.RecordID `json:"b,omitempty"`
}

func (l *pageBuilder[T]) fillPage(ctx context.Context) error {
	for {
		used, last, err := l.readChunk(ctx)
		switch {
		case err != nil:
			return err
		case used && last:
			return nil
		case !used, len(l.items) >= l.size, l.scanned >= scanRecords,
			l.isHeavy(), l.read >= pageBytes, time.Since(l.started) >= l.patience:
			l.next = l.at.encodeToken()
			return nil
		}
	}
}

// readChunk reads the next chunk of the store and adds the items that fit. used reports whether all of it was
// looked at, last whether it was the last chunk.
func (l *pageBuilder[T]) readChunk(ctx context.Context) (used, last bool, err error) {
	size := l.at.Chunk
	if size == 0 {
		size = l.step
	}
	items, next, bytes, err := l.source(ctx, l.at.Cursor, size)
	if errors.Is(err, job.ErrCursor) {
		// Tokens are not signed: anybody can make one.
		return false, false, job.Invalid("page_token", "names no place in this listing")
	}
	if err != nil {
		return false, false, err
	}
	l.scanned, l.read = l.scanned+len(items), l.read+bytes
	slices.SortFunc(items, func(a, b T) int { return strings.Compare(l.id(a), l.id(b)) })
	after := l.at.After
	if l.at.ChunkEnd != next {
		after = ""
	}
	for _, item := range items {
		id := l.id(item)
		if id <= after || !l.want(item) {
			continue
		}
		if len(l.items) >= l.size || l.isHeavy() {
			l.at.ChunkEnd, l.at.Chunk = next, size
			return false, false, nil
		}
		l.at.After = id
		l.items = append(l.items, item)
		l.places = append(l.places, position{l.at.Cursor, id, next, size, l.at.Filter, l.at.Beyond})
		l.bytes += l.weight(item)
	}
	l.at = position{Cursor: next, Filter: l.at.Filter, Beyond: l.at.Beyond}
	return true, next == "", nil
}

// isHeavy reports whether the page has as many bytes as it may have.
func (l *pageBuilder[T]) isHeavy() bool { return l.bytes >= cmp.Or(l.budget, pageBytes) }

func chunkSize(f job.Filter, size int) int {
	if f.Covers == nil && f.Scope == nil && f.Condition == nil && f.Queue == "" && f.Status == 0 &&
		f.IDPrefix == "" && len(f.Labels) == 0 && f.MinFailures == 0 {
		return max(10, min(size, filterChunk))
	}
	return filterChunk
}

func matchesFilter(f job.Filter, r *job.Record) bool {
	switch {
	case r.State.Deleting,
		!f.CoversAll(r.Definition.Queue),
		f.Queue != "" && r.Definition.Queue != f.Queue,
		f.Status != job.StatusAny && r.State.Status() != f.Status,
		!strings.HasPrefix(r.Definition.ID, f.IDPrefix),
		int64(r.State.Failures) < f.MinFailures,
		!f.Scope.Holds(r.Definition),
		f.Condition != nil && !f.Condition.Matches(r, f.NowMS):
		return false
	}
	return hasLabels(r.Definition.Labels, f.Labels)
}

func hasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if value, ok := have[k]; !ok || value != v {
			return false
		}
	}
	return true
}

func (p position) encodeToken() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseToken reads a token and refuses one of another listing. call is the method
// that returned it.
func parseToken(token, call string, f job.Filter) (position, error) {
	fingerprint := fingerprintFilter(call, f)
	if token == "" {
		return position{Filter: fingerprint}, nil
	}
	var p position
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	switch {
	case err != nil || p.Chunk < 0 || p.Chunk > MaxPageSize:
		return p, job.Invalid("page_token", "is not one that %s gave", call)
	case p.Filter != fingerprint:
		return p, job.Invalid("page_token", "belongs to a listing with another parent or filter")
	}
	return p, nil
}

func fingerprintFilter(call string, f job.Filter) string {
	// Maps are written in the order of their keys.
	text, err := json.Marshal(struct {
		Call   string
		Filter job.Filter
	}{call, f})
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:6])
}
