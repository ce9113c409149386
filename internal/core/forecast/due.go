package forecast

import (
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// DueIndex has the planned runs of a shard.
type DueIndex struct {
	// ReadMS is when the read of the index began.
	ReadMS unixtime.Milli
	table  *Table
	rows   []dueRow
}

// dueRow has the planned runs of a queue, or of a lane: their minutes, in order, with the numbers of runs. Minute 0 has
// those that were overdue when the index was read, minute 1 is that of the read.
type dueRow struct {
	queue   uint32
	minutes []uint16
	counts  []uint32
}

// NewDueIndex returns an empty index. nowMS is when its read begins.
func (t *Table) NewDueIndex(nowMS unixtime.Milli) *DueIndex {
	return &DueIndex{table: t, ReadMS: nowMS}
}

// Add adds planned runs of a queue: their due times in order, ms. Pages of a lane follow each other.
func (x *DueIndex) Add(queue job.QueueKey, dueMS []unixtime.Milli) {
	if len(dueMS) == 0 {
		return
	}
	row := dueRow{queue: x.table.numberOf(queue)}
	if k := len(x.rows) - 1; k >= 0 && x.rows[k].queue == row.queue {
		row, x.rows = x.rows[k], x.rows[:k]
	}
	base := x.ReadMS / minuteMS
	for _, ms := range dueMS {
		minute := int64(0)
		if ms > x.ReadMS {
			minute = int64(ms/minuteMS-base) + 1
		}
		if minute > reach.Milliseconds()/minuteMS {
			continue
		}
		if k := len(row.minutes) - 1; k >= 0 && row.minutes[k] == uint16(minute) {
			row.counts[k]++
			continue
		}
		row.minutes, row.counts = append(row.minutes, uint16(minute)), append(row.counts, 1)
	}
	x.rows = append(x.rows, row)
}

// Trim gives back memory after the last Add.
func (x *DueIndex) Trim() {
	for i := range x.rows {
		x.rows[i].minutes = slices.Clip(slices.Clone(x.rows[i].minutes))
		x.rows[i].counts = slices.Clip(slices.Clone(x.rows[i].counts))
	}
	x.rows = slices.Clip(x.rows)
}
