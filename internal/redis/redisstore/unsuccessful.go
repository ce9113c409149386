package redisstore

import (
	"context"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Limits of the index of unsuccessful runs; see Options.KeepUnsuccessful and Options.UnsuccessfulAge.
const (
	DefaultKeepUnsuccessful = 64_000
	MinKeepUnsuccessful     = 1000
	MaxKeepUnsuccessful     = 10_000_000
	DefaultUnsuccessfulAge  = 7 * 24 * time.Hour
	MinUnsuccessfulAge      = time.Hour
	MaxUnsuccessfulAge      = 365 * 24 * time.Hour

	minUnsuccessfulPerShard = 16
	// unsuccessfulSlack is how much earlier than the last run of a queue its instant may be: decisions estimate the
	// shard's clock, and may be stored in another order than they were made.
	unsuccessfulSlack = unixtime.Milli(60_000)
	// expectedQueues is about how many queues of a shard have unsuccessful runs.
	expectedQueues = 8
)

// unsuccessfulBounds are the bounds of the index in each shard.
type unsuccessfulBounds struct {
	entries int // of one queue
	ageMS   int64
}

func newUnsuccessfulBounds(o Options, shards int) unsuccessfulBounds {
	return unsuccessfulBounds{
		entries: max(minUnsuccessfulPerShard, o.KeepUnsuccessful/shards), ageMS: o.UnsuccessfulAge.Milliseconds(),
	}
}

// unsuccessfulPlaceholder stands for the place of the index of a queue.
type unsuccessfulPlaceholder job.QueueKey

// unsuccessfulQueuesPlaceholder stands for the place of the set of queues that have an index.
type unsuccessfulQueuesPlaceholder struct{}

// addUnsuccessful adds ended runs that did not succeed to the index of their queue. If the run was a record of its own,
// before is the write of that record.
func (i *applyItem) addUnsuccessful(b unsuccessfulBounds, w, before *job.Write) error {
	lane := w.From
	if before != nil && before.Record.IsRun() {
		lane = before.From
	}
	runs := job.UnsuccessfulRuns(w.Decision, w.Record.Key(), lane.Queue)
	if len(runs) == 0 {
		return nil
	}
	var texts [2][]byte // most often the second one is empty
	for k := range runs {
		runs[k].FinishedMS = runs[0].FinishedMS
		text, err := codec.EncodeEndedRun(&runs[k])
		if err != nil {
			return err
		}
		texts[k] = text
	}
	queue := job.QueueKey{Namespace: w.Record.Key().Namespace, Queue: lane.Queue}
	i.addStep(stepUnsuccessful, unsuccessfulPlaceholder(queue), unsuccessfulQueuesPlaceholder{}, b.entries, b.ageMS,
		int64(runs[0].FinishedMS), texts[0], texts[1])
	return nil
}

// FindUnsuccessful lists the indexes of unsuccessful runs of wanted queues, of all shards, that may have a run which
// ended at an instant or later.
func (s *Store) FindUnsuccessful(ctx context.Context, since unixtime.Milli,
	want func(job.QueueKey) bool) ([]job.UnsuccessfulIndex, error) {
	ops := make([]listRead, len(s.shards))
	for shard := range s.shards {
		key := s.shards[shard].UnsuccessfulQueues
		ops[shard] = listRead{runner.NewCommand("zrange", key, "zrange", key, int64(max(0, since-unsuccessfulSlack)), "+inf",
			"byscore"), costOfRange(expectedQueues)}
	}
	if err := s.runInParts(ctx, ops); err != nil {
		return nil, err
	}
	var found []job.UnsuccessfulIndex
	for shard, o := range ops {
		for _, name := range o.Reply.Texts() {
			namespace, queue, _ := strings.Cut(name, "/")
			key := job.QueueKey{Namespace: namespace, Queue: queue}
			if want(key) {
				found = append(found, job.UnsuccessfulIndex{Shard: shard, Queue: key})
			}
		}
	}
	return found, nil
}

// ReadUnsuccessful reads parts of indexes of unsuccessful runs.
func (s *Store) ReadUnsuccessful(ctx context.Context, ranges []job.UnsuccessfulRange) ([][]job.IndexedRun, error) {
	ops := make([]listRead, len(ranges))
	for i, r := range ranges {
		key := s.shards[r.Shard].UnsuccessfulKey(r.Queue)
		ops[i] = listRead{runner.NewCommand("zrange", key, "zrange", key, int64(r.MaxMS), int64(r.MinMS), "byscore", "rev",
			"limit", r.Skip, r.Limit, "withscores"), costOfRange(r.Limit)}
	}
	if err := s.runInParts(ctx, ops); err != nil {
		return nil, err
	}
	out := make([][]job.IndexedRun, len(ranges))
	for i, r := range ranges {
		pairs := ops[i].Reply.Pairs()
		out[i] = make([]job.IndexedRun, 0, len(pairs)/2)
		for k := 0; k+1 < len(pairs); k += 2 {
			end := unixtime.Milli(pairs.ScoreAt(k + 1))
			run, err := codec.DecodeEndedRun(pairs.TextAt(k), r.Queue, end)
			if err != nil {
				s.runner.ReportCorrupt(r.Shard, "unsuccessful", err, r.Queue.Namespace+"/"+r.Queue.Queue)
			}
			out[i] = append(out[i], job.IndexedRun{EndMS: end, Run: run})
		}
	}
	return out, nil
}

// ReadSuccesses reads parts of the events of shards. Without events it fails with [job.ErrEventsOff].
func (s *Store) ReadSuccesses(ctx context.Context, ranges []job.SuccessRange) ([][]job.SuccessEvent, error) {
	if s.events == nil {
		return nil, job.ErrEventsOff
	}
	ops := make([]listRead, len(ranges))
	for i, r := range ranges {
		key := s.shards[r.Shard].Events
		command := runner.NewCommand("events", key, "xrevrange", key, "("+placeText(r.Before), int64(r.FromMS),
			"count", r.Limit)
		ops[i] = listRead{command, costOfRange(r.Limit)}
	}
	if err := s.runInParts(ctx, ops); err != nil {
		return nil, err
	}
	out := make([][]job.SuccessEvent, len(ranges))
	for i, r := range ranges {
		filter := job.EventFilter{Kinds: []string{job.KindRunSucceeded}}
		if r.Namespace != "" {
			filter.Namespaces = []string{r.Namespace}
		}
		out[i] = make([]job.SuccessEvent, len(ops[i].Reply))
		for k := range ops[i].Reply {
			out[i][k] = readSuccess(r.Shard, &filter, ops[i].Reply.ListAt(k))
		}
	}
	return out, nil
}

// readSuccess reads an entry of a stream of events.
func readSuccess(shard int, filter *job.EventFilter, entry runner.Reply) job.SuccessEvent {
	place, _ := parsePlace(entry.TextAt(0)) // Redis made it
	success := job.SuccessEvent{Place: place}
	text := entry.ListAt(1).TextAt(1)
	if !mayMatch(filter, text) {
		return success
	}
	h := decodeEvent(shard, entry.TextAt(0), text)
	if filter.Matches(&h) {
		success.Run = &job.EndedRun{Key: h.Key, Queue: h.Queue, Run: job.Run{
			ID: h.RunID, Trigger: h.Trigger, DueMS: h.DueMS, StartedMS: h.StartMS, FinishedMS: place.MS,
			Attempts: h.Attempt, Outcome: job.OutcomeSucceeded,
		}}
	}
	return success
}
