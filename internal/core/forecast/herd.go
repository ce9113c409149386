package forecast

import (
	"cmp"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const (
	// DefaultHerdJobs is how many jobs at one time are a herd if the caller does not say.
	DefaultHerdJobs = 100
	maxQueueHerds   = 50
	maxHerdTimes    = 100_000
	// herdFactor is how many times the mean of its hour a minute has to have, if the jobs are not known.
	herdFactor = 4
)

// Herd is a number of jobs of one queue with the same scheduled time.
type Herd struct {
	Queue  job.QueueKey
	TimeMS unixtime.Milli
	// WholeMinute: the runs are due within one minute; otherwise their scheduled time is the same.
	WholeMinute bool
	// Jobs of the herd. Movable is how many of them have schedules that can spread their times.
	Jobs, Movable int64
	// Times is how many times of the forecast the same schedules meet; TimeMS is the first.
	Times int64
	// Schedule is that of most of the jobs; "" if it is not known.
	Schedule string
	IDs      []string // at most SampledJobs
	Fix      string   // for people; "" if there is none
}

// herdTime is what is scheduled for one instant.
type herdTime struct {
	jobs, movable int64
	most          int64    // jobs of the largest group
	largest       *pattern // of the largest group
	ids           []string
	groups        uint64 // which groups meet, as a sum
}

// herdSums adds up the scheduled times of a queue.
type herdSums struct {
	minJobs int64
	times   map[int64]*herdTime
	count   uint64 // groups so far
}

func (h *herdSums) reset(minJobs int64) {
	*h = herdSums{minJobs: minJobs, times: map[int64]*herdTime{}}
}

// add adds a group whose jobs have the same times. Groups that are too small to matter are left out.
func (h *herdSums) add(p *pattern, g group, list []occurrence, now int64, ids []string) {
	jobs := int64(g.jobs)
	if jobs*50 < h.minJobs {
		return
	}
	h.count++
	mark := h.count * 0x9e3779b97f4a7c15
	for _, o := range list {
		if o.ms < now || o.n > 1 {
			continue
		}
		t := h.times[o.ms]
		if t == nil {
			if len(h.times) >= maxHerdTimes {
				return
			}
			t = &herdTime{}
			h.times[o.ms] = t
		}
		t.jobs += jobs
		t.groups += mark ^ mark>>29
		if p.advice != adviseNothing {
			t.movable += jobs
		}
		if jobs > t.most {
			t.most, t.largest = jobs, p
		}
		if len(t.ids) < SampledJobs {
			t.ids = slices.Concat(t.ids, ids[:min(len(ids), SampledJobs-len(t.ids))])
		}
	}
}

// find returns the herds of a queue, the largest first. Times at which the same groups meet are one herd.
func (h *herdSums) find(queue job.QueueKey, q Query, minutes *Series) []Herd {
	known := map[uint64]*Herd{}
	explained := map[int64]int64{}
	for ms, t := range h.times {
		explained[ms/minuteMS] += t.jobs
		if t.jobs < h.minJobs {
			continue
		}
		herd := known[t.groups]
		if herd == nil {
			herd = &Herd{Queue: queue, TimeMS: unixtime.Milli(ms), Jobs: t.jobs, Movable: t.movable,
				Schedule: t.largest.text, IDs: t.ids}
			slices.Sort(herd.IDs)
			if t.movable > 0 {
				herd.Fix = fixFor(t.largest)
			}
			known[t.groups] = herd
		}
		herd.Times++
		herd.TimeMS = min(herd.TimeMS, unixtime.Milli(ms))
	}
	herds := h.findMinutes(queue, q, minutes, explained)
	for _, herd := range known {
		herds = append(herds, *herd)
	}
	SortHerds(herds)
	return herds[:min(len(herds), maxQueueHerds)]
}

// findMinutes returns minutes with many more runs than their hour, if most runs are in no herd of schedules: jobs
// that run once, or were delayed to the same time.
func (h *herdSums) findMinutes(queue job.QueueKey, q Query, minutes *Series, explained map[int64]int64) (herds []Herd) {
	count := func(i int) int64 { return minutes.Planned[i] + minutes.Computed[i] + minutes.Estimated[i] }
	for begin := 0; begin < len(minutes.Planned); begin += 60 {
		end, sum := min(begin+60, len(minutes.Planned)), int64(0)
		for i := begin; i < end; i++ {
			sum += count(i)
		}
		for i := begin; i < end; i++ {
			ms, n := int64(q.StartMS)+int64(i)*minuteMS, count(i)
			rest := n - explained[ms/minuteMS]
			if ms > int64(q.NowMS) && rest >= h.minJobs && rest*2 > n && n*int64(end-begin) >= herdFactor*sum {
				herds = append(herds, Herd{Queue: queue, TimeMS: unixtime.Milli(ms), WholeMinute: true, Jobs: n,
					Times: 1, Fix: fixMinute})
			}
		}
	}
	return herds
}

const fixMinute = "give the jobs that run once other times"

// fixFor returns how the jobs of a pattern can be spread.
func fixFor(p *pattern) string {
	switch p.advice {
	case adviseCron:
		return "write H instead of the minute, set jitter, or choose another minute"
	case adviseCalendar:
		return "set jitter, or choose another minute"
	case adviseInterval:
		return "set jitter, or omit start_at, so that each job counts from its creation"
	}
	return ""
}

// SortHerds sorts herds, the largest first.
func SortHerds(herds []Herd) {
	slices.SortFunc(herds, func(a, b Herd) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(b.Times, a.Times), cmp.Compare(a.TimeMS, b.TimeMS),
			cmp.Compare(a.Queue.Namespace, b.Queue.Namespace), cmp.Compare(a.Queue.Queue, b.Queue.Queue))
	})
}

// MergeHerds adds up herds of several nodes. Those of one queue and time are one herd; those with fewer jobs than
// minJobs are left out.
func MergeHerds(herds []Herd, minJobs int64) []Herd {
	type place struct {
		queue  job.QueueKey
		ms     unixtime.Milli
		minute bool
	}
	sums := map[place]*Herd{}
	for _, h := range herds {
		key := place{h.Queue, h.TimeMS, h.WholeMinute}
		sum := sums[key]
		if sum == nil {
			sums[key] = &h
			continue
		}
		if h.Jobs > sum.Jobs {
			sum.Schedule, sum.Fix = h.Schedule, cmp.Or(h.Fix, sum.Fix)
		}
		sum.Jobs, sum.Movable, sum.Times = sum.Jobs+h.Jobs, sum.Movable+h.Movable, max(sum.Times, h.Times)
		sum.IDs = slices.Sorted(slices.Values(slices.Concat(sum.IDs, h.IDs)))
		sum.IDs = sum.IDs[:min(len(sum.IDs), SampledJobs)]
	}
	merged := make([]Herd, 0, len(sums))
	for _, h := range sums {
		if h.Jobs >= minJobs {
			merged = append(merged, *h)
		}
	}
	SortHerds(merged)
	return merged
}
