package ledger

import (
	"sync"

	"github.com/fermata-io/fermata/internal/core/job"
)

// cacheSize bounds the compiled definitions that are kept, about 1 KiB each.
const cacheSize = 16384

// compiledCache keeps compiled schedules that are expensive to compile: parsing a cron expression costs far more
// than evaluating it. Entries are valid for one revision of a definition, and serve a job and all its runs.
type compiledCache struct {
	mu      sync.Mutex
	limit   int
	entries map[job.RecordID]cachedDefinition
}

// cachedDefinition is a compiled definition, for everybody and for decisions. Those of a job are made one after the
// other, because its shard has one batch in flight, so that they can share a memory.
type cachedDefinition struct{ shared, remembering *job.Compiled }

func newCompiledCache(limit int) *compiledCache {
	return &compiledCache{limit: limit, entries: make(map[job.RecordID]cachedDefinition)}
}

func (c *compiledCache) compiledFor(record job.RecordID, d *job.Definition) (cachedDefinition, error) {
	if !d.Schedule.NeedsParsing() {
		compiled, err := job.Compile(d)
		return cachedDefinition{compiled, compiled}, err
	}
	c.mu.Lock()
	hit := c.entries[record]
	c.mu.Unlock()
	// A re-created job starts again at revision 1, hence the creation time.
	if hit.shared != nil && hit.shared.Revision == d.Revision && hit.shared.CreatedMS == d.CreatedMS {
		return hit, nil
	}
	compiled, err := job.Compile(d)
	if err != nil {
		return cachedDefinition{}, err
	}
	entry := cachedDefinition{compiled, compiled.Remembering()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.entries[record]; !known && len(c.entries) >= c.limit {
		for victim := range c.entries { // map order is random enough
			delete(c.entries, victim)
			break
		}
	}
	c.entries[record] = entry
	return entry, nil
}
