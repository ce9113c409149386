package historycheck

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// window is a scheduled time with the interval its run must start in, the grace included. given is the time that
// was given for it.
type window struct{ from, until, given int64 }

// checkPromise looks for the run of each scheduled time of one schedule.
func (h *History) checkPromise(p ExpectedSchedule, line *timeline, r *Report) {
	targets := h.windowsOf(p)
	if line == nil {
		owed := slices.DeleteFunc(targets, func(w window) bool { return h.isExcusedByEdit(p, w) || w.until > h.EndNS })
		r.Excused += len(targets) - len(owed)
		if len(owed) > 0 {
			r.addFinding(Lost, p.Job, "%d nominal times have passed and no run ever started", len(owed))
		}
		return
	}
	covered := coveredTimes(line)
	h.checkTooEarly(targets, covered, p.Job, r)
	var windows []window
	var reported []int64
	held := int64(math.MinInt64) // until when earlier runs excuse
	next := 0
	for _, w := range targets {
		for next < len(covered) && covered[next].nominal < w.from {
			held = max(held, h.latestBy(covered[next].end, h.Bounds.Settle))
			next++
		}
		own := next < len(covered) && covered[next].nominal == w.from
		if backs := next > 0 && next < len(covered) && covered[next-1].died && h.GivenUp[p.Job]; backs && own {
			w.until = max(w.until, h.latestBy(covered[next].due, h.Bounds.Lag)+int64(h.Bounds.Grace))
		} else if backs {
			r.Excused++
			continue
		}
		switch {
		case own && covered[next].start > w.until:
			r.addFinding(Late, p.Job, "the run of %s started at %s, %v after the end of its window",
				formatClock(w.from), formatClock(covered[next].start), time.Duration(covered[next].start-w.until))
			reported = append(reported, w.from)
		case own:
		case w.from <= held, h.isExcusedByEdit(p, w), w.until > h.EndNS: // or may yet run
			r.Excused++
			continue
		default:
			r.addFinding(Missed, p.Job, "no run of %s, which had until %s", formatClock(w.from), formatClock(w.until))
			reported = append(reported, w.from)
		}
		r.Targets++
		windows = append(windows, w)
	}
	for _, w := range unmatchedWindows(windows, covered, int64(h.Bounds.Early)) {
		if !slices.Contains(reported, w.from) {
			r.addFinding(Missed, p.Job, "no start of any run is left for %s, which had until %s", formatClock(w.from),
				formatClock(w.until))
		}
	}
}

// checkTooEarly looks for runs whose scheduled time, or start, lies before the time that was given, though they
// started when they were due.
func (h *History) checkTooEarly(targets []window, covered []coverage, job string, r *Report) {
	for _, w := range targets {
		least := w.from - int64(time.Millisecond)
		if w.given == w.from {
			least = w.from
		}
		for _, c := range covered {
			if c.nominal > w.from || c.nominal < least || c.start+int64(h.Bounds.Early) < c.due {
				continue
			}
			if first := min(c.nominal, c.start+int64(h.Bounds.Early)); first < w.given {
				r.addFinding(Early, job, "the run of %s is %v before the time that was given", formatClock(c.nominal),
					time.Duration(w.given-first))
			}
		}
	}
}

// isExcusedByEdit reports whether an edit excuses a scheduled time without a run: the edit that ended the
// promise came before the window did, or the one that began it found a run of the previous schedule that a fault
// held.
func (h *History) isExcusedByEdit(p ExpectedSchedule, w window) bool {
	if p.UntilMS != 0 && w.until > p.UntilMS*1e6 {
		return true
	}
	held := h.latestBy(p.FromMS*1e6, 0)
	return p.Edited && held > p.FromMS*1e6 && w.from <= held
}

// windowsOf returns the scheduled times whose window has ended, without the grace.
func (h *History) windowsOf(p ExpectedSchedule) []window {
	if p.Every <= 0 {
		return nil
	}
	every := p.Every.Milliseconds()
	first := p.AnchorMS
	if p.FromMS > first {
		first += (p.FromMS - first + every - 1) / every * every
	}
	until := p.UntilMS
	if until == 0 {
		until = math.MaxInt64
	}
	var all []window
	for ms := first; ms < until; ms += every {
		w := window{ms * 1e6, h.latestBy(ms*1e6, h.Bounds.Lag), ms*1e6 - p.leadNS()}
		if w.from > h.EndNS {
			break
		}
		if w.until <= h.EndNS {
			w.until += int64(h.Bounds.Grace)
			all = append(all, w)
		}
	}
	return all
}

// coverage is one run as targets see it: when it was due, first started and last ended, and
// whether no execution of it did.
type coverage struct {
	nominal, due, start, end int64
	died                     bool
}

// coveredTimes orders the runs of a job by scheduled time.
func coveredTimes(line *timeline) []coverage {
	var all []coverage
	for _, executions := range line.runs {
		c := coverage{nominal: executions[0].NominalMS * 1e6, due: executions[0].DueMS * 1e6, start: math.MaxInt64,
			died: true}
		for _, e := range executions {
			c.start, c.end = min(c.start, e.AtNS), max(c.end, e.AtNS)
			if e.end != 0 {
				c.end, c.died = max(c.end, e.end), false
			}
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b coverage) int { return cmp.Compare(a.nominal, b.nominal) })
	return all
}

// unmatchedWindows gives each start to the open window with the earliest deadline, which
// is exact for points in intervals, and returns the windows that got none.
func unmatchedWindows(windows []window, runs []coverage, early int64) []window {
	starts := make([]int64, len(runs))
	for i, c := range runs {
		starts[i] = c.start
	}
	slices.Sort(starts)
	windows = slices.Clone(windows)
	slices.SortFunc(windows, func(a, b window) int { return cmp.Compare(a.from, b.from) })
	var open, none []window
	next := 0
	expire := func(at int64) {
		open = slices.DeleteFunc(open, func(w window) bool {
			if w.until < at {
				none = append(none, w)
			}
			return w.until < at
		})
	}
	for _, s := range starts {
		for next < len(windows) && windows[next].given <= s+early {
			open = append(open, windows[next])
			next++
		}
		expire(s)
		if len(open) > 0 {
			i := 0
			for j := range open {
				if open[j].until < open[i].until {
					i = j
				}
			}
			open = slices.Delete(open, i, i+1)
		}
	}
	expire(math.MaxInt64)
	return append(none, windows[next:]...)
}
