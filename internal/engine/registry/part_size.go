package registry

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
)

const (
	// firstPartSize is how many records a call reads or changes before it knows their sizes, and before it looks at the
	// time. Each further part is up to twice as large.
	firstPartSize = 16
	// maxPartSize bounds the records of one part, however small they were so far.
	maxPartSize = 128
	// partBytes is about how many bytes of payloads one part has: what a call has in memory does not grow with the
	// records that it names.
	partBytes = 4 << 20
)

// partSize decides how many records a call reads or changes at once. They may be large, which is not known
// before they are read.
type partSize struct {
	next           int // size of the next part
	records, bytes int // of the parts so far
}

func newPartSize() *partSize { return &partSize{next: firstPartSize} }

// note counts a record of the present part; d is nil if there is none.
func (p *partSize) note(d *job.Definition) {
	p.records++
	if d != nil {
		p.bytes += d.ResponseSize()
	}
}

// noteResults counts the records of the present part, which were changed.
func (p *partSize) noteResults(results []job.ChangeResult) {
	for i := range results {
		p.note(results[i].Record.Definition)
	}
}

// grow sets the size of the next part: twice that of the present one, as far as the mean size of the records so far
// allows.
func (p *partSize) grow() {
	p.next = min(2*p.next, maxPartSize, recordsWithin(partBytes, p.records, p.bytes))
}

// recordsWithin returns how many further records, at least one, have room bytes, if they are as large as
// those so far in the mean.
func recordsWithin(room, records, bytes int) int { return max(1, room/max(1, bytes/max(1, records))) }

// readJobs reads jobs in parts, see readInParts.
func (r *Registry) readJobs(ctx context.Context, keys []job.Key, use func(i int, record *job.Record)) error {
	return readInParts(keys, func(part []job.Key) ([]*job.Record, error) { return r.o.Store.Get(ctx, part) }, use)
}

// readInParts reads records, and calls use for each one with its index. The record is nil if it does not exist. Only
// the records of one part are in memory, unless use keeps them.
func readInParts[K any](names []K, read func([]K) ([]*job.Record, error), use func(i int, record *job.Record)) error {
	for done, size := 0, newPartSize(); done < len(names); size.grow() {
		part := names[done:min(done+size.next, len(names))]
		records, err := read(part)
		if err != nil {
			return err
		}
		for i, record := range records {
			if record == nil {
				size.note(nil)
			} else {
				size.note(record.Definition)
			}
			use(done+i, record)
		}
		done += len(part)
	}
	return nil
}
