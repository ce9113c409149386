package forecast

import (
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const (
	maxRows   = 8_000 // of a table
	rowCellMS = 10 * minuteMS
	rowCells  = int64(reach) / 1_000_000 / rowCellMS
)

// groupKey names the jobs of one queue with one pattern.
type groupKey struct{ queue, pattern uint32 }

// group counts jobs.
type group struct {
	jobs, live uint32 // live: their current run is not the planned one of the schedule
	// offsets is the sum of the phases within the cell, low and high are the least and the greatest, ms.
	offsets   uint64
	low, high uint32
}

// offset returns the phase of the group within the cell.
func (g group) offset() int64 { return int64(g.offsets / uint64(max(1, g.jobs))) }

// add adds the jobs of another group with the same key.
func (g group) add(o group) group {
	switch {
	case g.jobs == 0:
		return o
	case o.jobs == 0:
		return g
	}
	return group{jobs: g.jobs + o.jobs, live: g.live + o.live, offsets: g.offsets + o.offsets,
		low: min(g.low, o.low), high: max(g.high, o.high)}
}

// Shard is what one shard contributes to a forecast.
type Shard struct {
	table   *Table
	reader  patternReader
	groups  map[groupKey]group
	samples map[groupKey][]string        // ids of some jobs of a group
	rows    map[uint32]*[rowCells]uint32 // by queue: jobs without a group
	// ownedGroups and ownedRows are the shares of namespaces in groups and rows.
	ownedGroups, ownedRows shares

	// Due has the planned runs; nil: they were not read yet.
	Due *DueIndex
	// DefinitionsMS is when the read of the definitions began.
	DefinitionsMS unixtime.Milli
	Jobs          int64            // that were read
	leftOut       map[uint32]int64 // by queue: jobs that recur but are counted nowhere
}

// NewShard returns an empty shard. nowMS is when the read of its definitions begins.
func (t *Table) NewShard(nowMS unixtime.Milli) *Shard {
	return &Shard{table: t, reader: patternReader{zones: t.zones}, DefinitionsMS: nowMS,
		groups: map[groupKey]group{}, samples: map[groupKey][]string{},
		ownedGroups: shares{}, ownedRows: shares{}, rows: map[uint32]*[rowCells]uint32{}, leftOut: map[uint32]int64{}}
}

// AddJob adds the occurrences of a job after its planned run.
func (s *Shard) AddJob(d *job.Definition, state *job.State) {
	s.Jobs++
	if state.Paused || state.Deleting || state.Region > job.RegionLeased ||
		!s.reader.read(d, state, int64(s.DefinitionsMS)) {
		return
	}
	queue := s.table.numberOf(job.QueueKey{Namespace: d.Namespace, Queue: d.Queue})
	namespace := s.table.names[queue].Namespace
	n, ok := s.table.intern(&s.reader, namespace)
	key := groupKey{queue, n}
	g, known := s.groups[key]
	if !ok || !known && !s.ownedGroups.allows(namespace, len(s.groups), s.table.maxGroups) {
		s.addToRow(queue, n, ok)
		return
	}
	if !known {
		s.ownedGroups[namespace]++
	}
	offset := uint32(s.reader.offset)
	one := group{jobs: 1, offsets: uint64(offset), low: offset, high: offset}
	if !isPlanned(state) && (state.Live() || state.Due <= s.DefinitionsMS) {
		one.live = 1
	}
	s.groups[key] = g.add(one)
	if known || s.table.samples < maxSamples/2 {
		s.sample(key, d.ID)
	}
}

// sample keeps the ids of some jobs of a group, for herds.
func (s *Shard) sample(key groupKey, id string) {
	ids := s.samples[key]
	if len(ids) < s.table.maxSampled && s.table.samples < maxSamples {
		s.samples[key] = append(ids, strings.Clone(id))
		s.table.samples++
	}
}

// addToRow counts the occurrences of a job that has no group, and perhaps no pattern in the table.
func (s *Shard) addToRow(queue, number uint32, interned bool) {
	p, row := s.reader.p, s.rows[queue]
	if interned {
		p = *s.table.patterns[number]
	}
	namespace := s.table.names[queue].Namespace
	full := row == nil && !s.ownedRows.allows(namespace, len(s.rows), s.table.maxQueues)
	if full || !interned && s.reader.compile(&p) != nil {
		s.leftOut[queue]++
		return
	}
	if row == nil {
		row = new([rowCells]uint32)
		s.rows[queue] = row
		s.ownedRows[namespace]++
	}
	now := int64(s.DefinitionsMS)
	list := p.collect(nil, now, now+reach.Milliseconds(), s.reader.offset, schedule.NewBudget(1))
	p.later(group{jobs: 1}, list, now, func(ms, n, _ int64) {
		if cell := (ms - now) / rowCellMS; cell < rowCells {
			row[cell] += uint32(n)
		}
	})
}
