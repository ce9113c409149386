package forecast

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

// occurrences calls visit for each minute with occurrences in (after, upto], in order: with the first of them, ms, and
// their number. offset is the phase within the cell. The budget bounds the excluded times that are passed over.
func (p *pattern) occurrences(after, upto, offset int64, b *schedule.Budget, visit func(ms, n int64) bool) {
	after = max(after, p.after)
	if p.until > 0 {
		upto = min(upto, p.until-1)
	}
	if p.every > 0 {
		p.gridOccurrences(after, upto, offset, b, visit)
		return
	}
	p.times.CountByMinute(time.UnixMilli(after), time.UnixMilli(upto), b, func(first time.Time, n int64) bool {
		return visit(first.UnixMilli(), n)
	})
}

// gridOccurrences counts by division: an interval of a millisecond takes one step a minute.
func (p *pattern) gridOccurrences(after, upto, offset int64, b *schedule.Budget, visit func(ms, n int64) bool) {
	phase := p.cell + offset
	var exclusions *schedule.Schedule
	if p.times != nil {
		exclusions = p.times.Within(b)
	}
	for at := nextOnGrid(after, p.every, phase); at <= upto; {
		end := min(upto, at/minuteMS*minuteMS+minuteMS-1)
		n := (end-at)/p.every + 1
		if until := excludedUntil(exclusions, at); until > at {
			at = nextOnGrid(until-1, p.every, phase)
			continue
		}
		if !visit(at, n) {
			return
		}
		at += n * p.every
	}
}

// nextOnGrid returns the first time after t of a grid. Times are not negative.
func nextOnGrid(t, every, phase int64) int64 {
	if t < phase {
		return phase - (phase-t-1)/every*every
	}
	return phase + ((t-phase)/every+1)*every
}

// excludedUntil returns until when an instant of an interval is excluded, or an earlier time. Of one minute it looks
// at the first instant only.
func excludedUntil(exclusions *schedule.Schedule, ms int64) int64 {
	allowed, ok := exclusions.NextAllowed(time.UnixMilli(ms))
	if !ok {
		return ms + 2*reach.Milliseconds()
	}
	return allowed.UnixMilli()
}

// occurrence is a minute with scheduled times: the first of them, ms, and their number.
type occurrence struct{ ms, n int64 }

// collect appends the occurrences after now of a pattern.
func (p *pattern) collect(list []occurrence, now, upto, offset int64, b *schedule.Budget) []occurrence {
	p.occurrences(now, upto, offset, b, func(ms, n int64) bool {
		list = append(list, occurrence{ms, n})
		return true
	})
	return list
}

// later calls visit with the runs of a group that are not planned, given its occurrences after now: with the scheduled
// time, the number, and over which window the due times are spread. Of the first occurrence, these are the runs of the
// jobs whose planned run is another one.
func (p *pattern) later(g group, list []occurrence, now int64, visit func(ms, n, window int64)) {
	jobs, other, passed := int64(g.jobs), int64(g.live), int64(0)
	switch {
	case len(list) == 0:
	case p.unplanned && p.after > now:
		other = jobs
	case p.jitter > 0:
		other = max(other, jobs*p.notYetDue(now, list[0].ms)/1000)
	case p.every > 0 && p.after <= now:
		waiting := int64(0)
		passed, waiting = p.splitCell(g, now, list[0].ms)
		other = min(jobs, other+waiting)
	}
	for i, o := range list {
		n, window := o.n*jobs, p.jitter
		switch i {
		case 0:
			n -= jobs - other
		case 1:
			n -= passed
		}
		if i+1 < len(list) {
			window = min(window, list[i+1].ms-o.ms)
		}
		if n > 0 {
			visit(o.ms, n, window)
		}
	}
}

// splitCell looks at a group whose phases differ, while some of its jobs have had their run of a cell and others
// have not. next is the first mean time after now. If it is in this cell, passed is how many have had that run: what is
// planned is their second one. Otherwise, waiting is how many have not had the run before: what is planned is that.
func (p *pattern) splitCell(g group, now, next int64) (passed, waiting int64) {
	width, jobs := int64(g.high-g.low), int64(g.jobs)
	if width == 0 {
		return 0, 0
	}
	begin := next - (g.offset() - int64(g.low))
	if begin <= now {
		return jobs * (now - begin) / width, 0
	}
	if next-p.every > now {
		return 0, 0 // the times before next are excluded
	}
	return 0, jobs * max(0, begin-p.every+width-now) / width
}

// notYetDue returns how many of a thousand jobs with jitter have not had their run of the last scheduled time yet.
func (p *pattern) notYetDue(now, next int64) int64 {
	last, ok := next-p.every, p.every > 0
	if p.every == 0 {
		at, found := p.times.Prev(time.UnixMilli(now))
		last, ok = at.UnixMilli(), found
	}
	window := min(p.jitter, next-last)
	if !ok || last <= p.after || window <= 0 {
		return 0
	}
	return max(0, last+window-now) * 1000 / window
}
