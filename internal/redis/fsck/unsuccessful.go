package fsck

import (
	"fmt"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// checkUnsuccessful looks for indexes of unsuccessful runs that lists do not find, among those of the queues of lanes,
// and for entries that cannot be read. A run needs no entry: an older version may have ended it, and entries are
// removed when there are too many.
func (a *check) checkUnsuccessful() error {
	queues := map[job.QueueKey]bool{}
	for l := range a.lanes {
		queues[job.QueueKey{Namespace: l.Namespace, Queue: l.Queue}] = true
	}
	known := runner.NewCommand("zrange", a.keys.UnsuccessfulQueues, "zrange", a.keys.UnsuccessfulQueues, 0, -1)
	if err := a.runner.Run(a.ctx, known); err != nil {
		return err
	}
	listed := map[job.QueueKey]bool{}
	for _, name := range known.Reply.Texts() {
		namespace, queue, _ := strings.Cut(name, "/")
		q := job.QueueKey{Namespace: namespace, Queue: queue}
		listed[q], queues[q] = true, true
	}
	for q := range queues {
		newest, err := a.checkUnsuccessfulEntries(q)
		if err == nil && newest > 0 && !listed[q] {
			err = a.checkUnsuccessfulListed(q)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkUnsuccessfulEntries reads the entries of a queue, in steps, and returns the last end.
func (a *check) checkUnsuccessfulEntries(q job.QueueKey) (newest unixtime.Milli, err error) {
	key := a.keys.UnsuccessfulKey(q)
	for from := 0; ; from += stepSize {
		o := runner.NewCommand("zrange", key, "zrange", key, from, from+stepSize-1, "withscores")
		if err := a.runner.Run(a.ctx, o); err != nil {
			return 0, err
		}
		pairs := o.Reply.Pairs()
		for k := 0; k+1 < len(pairs); k += 2 {
			newest = unixtime.Milli(pairs.ScoreAt(k + 1))
			if _, err := codec.DecodeEndedRun(pairs.TextAt(k), q, newest); err != nil {
				a.addFinding(job.Finding{Fault: job.FaultUnreadable, Lane: q.Namespace + "/" + q.Queue,
					Detail: "index of unsuccessful runs: " + err.Error()})
			}
		}
		if len(pairs) < 2*stepSize {
			return newest, nil
		}
	}
}

// checkUnsuccessfulListed reports an index that the set of queues lacks. Both are written in one step, and expire
// together after about the same time, so that it looks again.
func (a *check) checkUnsuccessfulListed(q job.QueueKey) error {
	name, key := q.Namespace+"/"+q.Queue, a.keys.UnsuccessfulKey(q)
	last := runner.NewCommand("zrange", key, "zrange", key, -1, -1, "withscores")
	listed := runner.NewCommand("zscore", a.keys.UnsuccessfulQueues, "zscore", a.keys.UnsuccessfulQueues, name)
	if err := a.runner.Run(a.ctx, last, listed); err != nil || len(last.Reply) == 0 || listed.Reply.ValueAt(0) != nil {
		return err
	}
	f := job.Finding{Fault: job.FaultUnsuccessful, Lane: name, Detail: fmt.Sprintf(
		"the set of queues with unsuccessful runs lacks %s", name)}
	if a.repair {
		add := runner.NewCommand("zadd", a.keys.UnsuccessfulQueues, "zadd", a.keys.UnsuccessfulQueues, "nx",
			last.Reply.Pairs().ScoreAt(1), name)
		if err := a.runner.Run(a.ctx, add); err != nil {
			return err
		}
		f.Repaired = true
	}
	a.addFinding(f)
	return nil
}
