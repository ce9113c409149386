package registry

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// Bounds of one page. A page ends early rather than pass one of them.
const (
	DefaultPageSize = 100
	MaxPageSize     = 1000

	scanRecords = 5000
	scanTime    = 50 * time.Millisecond
	// pageBytes keeps a page of large payloads below the usual limit of a
	// message, 4 MiB.
	pageBytes = 2 << 20
	// filterChunk is what one call of the store scans when most may not match.
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
	at, err := parseToken(token, f)
	if err != nil {
		return job.Page{}, err
	}
	l := listing{r: r, filter: f, size: pageSize, at: at, started: time.Now()}
	if err := l.fill(ctx); err != nil {
		return job.Page{}, err
	}
	return l.page, nil
}

func validateFilter(f job.Filter, pageSize int) error {
	var v []job.Violation
	// An id stands in, so that only the namespace can be at fault.
	v = append(v, job.ValidateKey(job.Key{Namespace: f.Namespace, ID: "x"})...)
	add := func(bad bool, field, description string) {
		if bad {
			v = append(v, job.Violation{Field: field, Description: description})
		}
	}
	add(pageSize < 0 || pageSize > MaxPageSize, "page_size", fmt.Sprintf("is %d, want 1 to %d, or 0 for %d", pageSize, MaxPageSize, DefaultPageSize))
	add(f.Status > job.StatusDone, "state", "is unknown")
	add(f.MinFailures < 0, "min_consecutive_failures", "is negative")
	if len(v) > 0 {
		return &job.InvalidError{Violations: v}
	}
	return nil
}

// listing fills one page.
type listing struct {
	r       *Registry
	filter  job.Filter
	size    int
	at      position
	started time.Time
	scanned int
	bytes   int
	page    job.Page
}

// position is where a listing goes on: at a chunk of the store, after an id in
// it if that chunk was not used up.
type position struct {
	Cursor string `json:"c,omitempty"`
	After  string `json:"a,omitempty"`
	// ChunkEnd is the cursor that followed the chunk. When it differs the next
	// time, the chunk is another one, and After says nothing about it.
	ChunkEnd string `json:"e,omitempty"`
	Chunk    int    `json:"n,omitempty"`
	Filter   string `json:"f"`
}

func (l *listing) fill(ctx context.Context) error {
	for {
		used, last, err := l.chunk(ctx)
		switch {
		case err != nil:
			return err
		case used && last:
			return nil
		case !used, len(l.page.Records) >= l.size, l.scanned >= scanRecords,
			l.bytes >= pageBytes, time.Since(l.started) >= scanTime:
			l.page.Next = l.at.token()
			return nil
		}
	}
}

// chunk takes what fits from the next piece of the store: used tells whether all
// of it was looked at, last whether it was the last one.
func (l *listing) chunk(ctx context.Context) (used, last bool, err error) {
	size := l.at.Chunk
	if size == 0 {
		size = l.chunkSize()
	}
	records, next, err := l.r.o.Store.List(ctx, l.filter.Namespace, l.at.Cursor, size)
	if err != nil {
		return false, false, err
	}
	l.scanned += len(records)
	slices.SortFunc(records, func(a, b job.Record) int { return strings.Compare(a.Definition.ID, b.Definition.ID) })
	after := l.at.After
	if l.at.ChunkEnd != next {
		after = ""
	}
	for i := range records {
		id := records[i].Definition.ID
		if id <= after || !matches(l.filter, &records[i]) {
			continue
		}
		if len(l.page.Records) >= l.size || l.bytes >= pageBytes {
			l.at.ChunkEnd, l.at.Chunk = next, size
			return false, false, nil
		}
		l.page.Records = append(l.page.Records, records[i])
		l.bytes += len(records[i].Definition.Payload)
		l.at.After = id
	}
	l.at = position{Cursor: next, Filter: l.at.Filter}
	return true, next == "", nil
}

func (l *listing) chunkSize() int {
	f := l.filter
	f.Namespace = ""
	if f.Queue == "" && f.Status == 0 && f.IDPrefix == "" && len(f.Labels) == 0 && f.MinFailures == 0 {
		return max(10, min(l.size, filterChunk))
	}
	return filterChunk
}

func matches(f job.Filter, r *job.Record) bool {
	switch {
	case r.State.Deleting,
		f.Queue != "" && r.Definition.Queue != f.Queue,
		f.Status != job.StatusAny && r.State.Status() != f.Status,
		!strings.HasPrefix(r.Definition.ID, f.IDPrefix),
		int64(r.State.Failures) < f.MinFailures:
		return false
	}
	for k, v := range f.Labels {
		if have, ok := r.Definition.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

func (p position) token() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseToken reads a token and refuses one of another listing.
func parseToken(token string, f job.Filter) (position, error) {
	fingerprint := fingerprint(f)
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
		return p, job.Invalid("page_token", "is not one that ListJobs gave")
	case p.Filter != fingerprint:
		return p, job.Invalid("page_token", "belongs to a listing with another parent or filter")
	}
	return p, nil
}

func fingerprint(f job.Filter) string {
	text, err := json.Marshal(f) // maps are written in the order of their keys
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:6])
}
