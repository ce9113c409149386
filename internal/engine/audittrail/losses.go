package audittrail

import (
	"fmt"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// LostMethod is the method of the record that says how many records were lost before it.
const LostMethod = "fermata.audit/Lost"

// lossLogPause is the pause between two log lines about lost records.
const lossLogPause = 10 * time.Second

// loss is a number of lost records, and the instants of the first and the last of them by the clock of the node.
type loss struct {
	records     int64
	first, last unixtime.Milli
}

// losses are the lost records that the chain does not mention yet.
type losses struct {
	mu       sync.Mutex
	pending  loss
	unlogged int64
	logged   time.Time
}

// add counts lost records, and returns how many the log has to mention now.
func (l *losses) add(lost loss) (toLog int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending.records == 0 {
		l.pending.first, l.pending.last = lost.first, lost.last
	}
	l.pending.records += lost.records
	l.pending.first, l.pending.last = min(l.pending.first, lost.first), max(l.pending.last, lost.last)
	l.unlogged += lost.records
	if !l.logged.IsZero() && time.Since(l.logged) < lossLogPause {
		return 0
	}
	toLog, l.unlogged, l.logged = l.unlogged, 0, time.Now()
	return toLog
}

func (l *losses) current() loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending
}

// settle forgets a loss that the chain mentions now.
func (l *losses) settle(stored loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending.records -= stored.records
	l.pending.first = max(l.pending.first, min(stored.last, l.pending.last))
	l.unlogged = 0
}

// record is the record of a loss, in the chain.
func (l loss) record(node string) job.TrailRecord {
	return job.TrailRecord{Identity: "fermata", Node: node, Method: LostMethod, Resource: "audit", Fields: []string{
		fmt.Sprintf("records=%d", l.records), "from_time=" + formatMilli(l.first), "to_time=" + formatMilli(l.last),
	}}
}

func formatMilli(ms unixtime.Milli) string {
	return time.UnixMilli(int64(ms)).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// countLost counts, logs and remembers records that are lost.
func (r *Recorder) countLost(lost loss, err error) {
	if lost.records == 0 {
		return
	}
	r.lostRecords.Add(float64(lost.records))
	if n := r.losses.add(lost); n > 0 {
		r.options.Logger.Error("audit records lost, only their log lines remain", "records", n, "error", err)
	}
}

// settleLoss notes that the chain mentions a loss.
func (r *Recorder) settleLoss(stored loss) {
	r.losses.settle(stored)
	r.options.Logger.Error("audit records were lost, which a record of the chain says now", "records", stored.records,
		"from", formatMilli(stored.first), "to", formatMilli(stored.last))
}

// lossOf is the loss of some records.
func lossOf(records []job.TrailRecord) (l loss) {
	if len(records) > 0 {
		l = loss{records: int64(len(records)), first: records[0].AtMS, last: records[len(records)-1].AtMS}
	}
	return l
}
