package limits

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/runner"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// censusBed is a shard with lanes that hold ten jobs each. Those of every other lane have full histories.
func censusBed(t *testing.T, s limitBed, admin *redis.Client, lanes int) (bytes int) {
	t.Helper()
	keys, ctx := s.shards[0], t.Context()
	p := admin.Pipeline()
	put := func(key, field, text string) {
		p.HSet(ctx, key, field, text)
		bytes += len(text)
	}
	for l := range lanes {
		lane := job.Lane{Namespace: "a", Queue: fmt.Sprint("q", l), Priority: 5}
		p.ZAdd(ctx, keys.Lanes, redis.Z{Score: 1, Member: lane.String()})
		for i := range 10 {
			id := fmt.Sprintf("a/j%d-%d", l, i)
			p.ZAdd(ctx, keys.LaneKey(lane), redis.Z{Score: float64(i), Member: id})
			bytes += len(id)
			put(keys.Def, id, "definition")
			if i == 3 {
				put(keys.Revisions, id, "revisions")
				bytes += len(id)
			}
			for slot := range codec.MaxHistory * (l % 2) {
				field := codec.HistoryField(job.RecordID(id), slot)
				bytes += len(field)
				put(keys.Hist, field, "a run")
			}
		}
	}
	if _, err := p.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	return bytes
}

var callsOf = regexp.MustCompile(`cmdstat_(?:hstrlen|zrange):calls=(\d+)`)

// looksOf counts what scripts have looked at since the last reset.
func looksOf(t *testing.T, admin *redis.Client) (n int) {
	t.Helper()
	text, err := admin.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range callsOf.FindAllStringSubmatch(text, -1) {
		calls, _ := strconv.Atoi(m[1])
		n += calls
	}
	return n
}

// watchedCalls counts looks after each pipeline, and the scripts of a census in it.
type watchedCalls struct {
	redis.Hook
	after func(scripts int)
}

func (watchedCalls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (watchedCalls) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (w watchedCalls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		scripts := 0
		for _, c := range cmds {
			if name := c.Name(); name == "evalsha" || name == "eval" {
				scripts++
			}
		}
		w.after(scripts)
		return err
	}
}

func censusStore(t *testing.T, shards int) (limitBed, *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	client, err := conn.NewClient(conn.ClientOptions{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	o := runner.Options{Client: client, Prefix: "fermata", OpTimeout: 5 * time.Second}
	return newBed(t, o, shards, false), server.Client()
}

// TestACensusLetsOthersIn: each round trip of a census has one script, which looks at a bounded
// number of fields and ranges, and all parts together count everything once.
func TestACensusLetsOthersIn(t *testing.T) {
	s, admin := censusStore(t, 1)
	const lanes = 150
	want := censusBed(t, s, admin, lanes)
	var most, round atomic.Int64
	s.client.(*redis.Client).AddHook(watchedCalls{after: func(scripts int) {
		n := int64(looksOf(t, admin))
		if scripts > 1 {
			t.Errorf("%d scripts in a pipeline", scripts)
		}
		most.Store(max(most.Load(), n-round.Swap(n)))
	}})
	for _, c := range []struct {
		counts *NamespaceCounts
		want   int
	}{{s.ByteCounts(), want}, {s.JobCounts(), lanes * 10}} {
		if _, err := c.counts.Census(t.Context(), 0, func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
		counts, _, err := c.counts.Counts(t.Context())
		if err != nil || counts["a"] != c.want {
			t.Errorf("%d, want %d (%v)", counts["a"], c.want, err)
		}
	}
	if n := most.Load(); n < looksPerCall/2 || n > looksPerCall+lanesPerCall {
		t.Errorf("one script makes %d looks, at most %d are allowed", n, looksPerCall)
	}
}

// TestACensusIsNotRepeatedAtOnce after a call without an answer: the server may still work on it.
func TestACensusIsNotRepeatedAtOnce(t *testing.T) {
	s, admin := censusStore(t, 1)
	censusBed(t, s, admin, 1)
	var tries atomic.Int64
	s.client.(*redis.Client).AddHook(lostAnswers{script: s.scripts.measure, tries: &tries})
	if began, err := s.ByteCounts().Census(t.Context(), 0, func(string) bool { return true }); err == nil || !began {
		t.Errorf("began %t, %v", began, err)
	}
	if n := tries.Load(); n != 1 {
		t.Errorf("the script was called %d times", n)
	}
}

// lostAnswers has no answers for the calls of a script.
type lostAnswers struct {
	watchedCalls
	script *runner.Script
	tries  *atomic.Int64
}

func (l lostAnswers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if args := cmds[0].Args(); len(args) < 2 || args[1] != l.script.SHA && args[1] != l.script.Source {
			return next(ctx, cmds)
		}
		l.tries.Add(1)
		for _, c := range cmds {
			c.SetErr(context.DeadlineExceeded)
		}
		return context.DeadlineExceeded
	}
}
