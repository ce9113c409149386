package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// storeLargeJobs stores jobs with payloads of 250 KB in shard 0, all due, in one lane.
func storeLargeJobs(t *testing.T, s *redisstore.Store, n int) (lane job.Lane, keys []job.Key) {
	t.Helper()
	lane = job.Lane{Namespace: "ns", Queue: "q"}
	for i := 0; len(keys) < n; i++ {
		key := job.Key{Namespace: "ns", ID: fmt.Sprint("j", i)}
		if s.ShardOf(key) != 0 {
			continue
		}
		d := job.WithDefaults(job.Definition{
			Key: key, Queue: "q", Handler: "h", AnchorMS: 1_800_000_000_000, Payload: make([]byte, 250_000),
			Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
		})
		state := job.State{Revision: 1, Lane: lane, Nominal: unixtime.Milli(1000 + i), Due: unixtime.Milli(1000 + i)}
		batch := job.CreateBatch{Records: []job.Record{{Definition: &d, State: state}}}
		if reply := s.Create(t.Context(), []job.CreateBatch{batch})[0]; reply.Err != nil {
			t.Fatal(reply.Err)
		}
		keys = append(keys, key)
	}
	return lane, keys
}

// replySizes is a hook that keeps the size of the largest reply of one command.
type replySizes struct{ largest *atomic.Int64 }

func (h replySizes) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h replySizes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.measure(cmd)
		return err
	}
}
func (h replySizes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			h.measure(cmd)
		}
		return err
	}
}

func (h replySizes) measure(cmd redis.Cmder) {
	if c, ok := cmd.(*redis.Cmd); ok {
		h.largest.Store(max(h.largest.Load(), int64(sizeOf(c.Val()))))
	}
}

func sizeOf(v any) (n int) {
	switch v := v.(type) {
	case string:
		return len(v)
	case []any:
		for _, part := range v {
			n += sizeOf(part)
		}
	}
	return n
}

// TestLargeDefinitionsAreReadInParts: no command of a lease or of a read brings more than some megabytes, every record
// comes with its definition, and later leases take fewer records.
func TestLargeDefinitionsAreReadInParts(t *testing.T) {
	server := redistest.Start(t)
	client, err := conn.NewClient(conn.ClientOptions{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	s, err := redisstore.Open(t.Context(), redisstore.Options{Client: client, Shards: 4, AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	lane, keys := storeLargeJobs(t, s, 260)
	if err := server.Client().Set(t.Context(), s.LockKey(0), "lock", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var largest atomic.Int64
	client.(*redis.Client).AddHook(replySizes{&largest})
	lease := func(n int) int {
		t.Helper()
		r := s.Lease(t.Context(), []job.LeaseRequest{{Shard: 0, LockValue: "lock", TTL: time.Hour,
			Quotas: []job.LaneQuota{{Lane: lane, N: n}}}})[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		for _, l := range r.Leased {
			if l.Known == nil || len(l.Known.Definition.Payload) != 250_000 || l.Known.Definition.Record() != l.Record {
				t.Fatalf("%s was leased without its definition", l.Record)
			}
		}
		return len(r.Leased)
	}
	if n := lease(40); n != 40 { // of which the script returns the first definitions
		t.Errorf("%d leases, want 40", n)
	}
	if n := lease(100); n < 8 || n > 70 {
		t.Errorf("%d leases of 250 KB each, want 16 MB of them", n)
	}
	records, err := s.Get(t.Context(), keys[:100])
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range records {
		if r == nil || len(r.Definition.Payload) != 250_000 || r.Definition.Key != keys[i] {
			t.Errorf("%s was read without its definition", keys[i])
		}
	}
	if n := largest.Load(); n < 1<<20 || n > 5<<20 {
		t.Errorf("the largest reply has %d bytes", n)
	}
}

// TestManyLeasesAtOnce: a lease of more records than the script returns definitions for reads them in parts as well.
func TestManyLeasesAtOnce(t *testing.T) {
	s, admin := jobsBed(t)
	lane, _ := storeLargeJobs(t, s, 70)
	if err := admin.Set(t.Context(), s.LockKey(0), "lock", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r := s.Lease(t.Context(), []job.LeaseRequest{{Shard: 0, LockValue: "lock", TTL: time.Hour,
		Quotas: []job.LaneQuota{{Lane: lane, N: 100}}}})[0]
	if r.Err != nil || len(r.Leased) != 70 {
		t.Fatalf("%d leases (%v), want 70", len(r.Leased), r.Err)
	}
	for i, l := range r.Leased {
		if len(l.Known.Definition.Payload) != 250_000 || l.Known.Definition.Record() != l.Record {
			t.Errorf("lease %d of %s has the definition of %s", i, l.Record, l.Known.Definition.Record())
		}
	}
}

// TestSnapshotsOfLargeJobsAreComplete: snapshots of many large jobs are complete.
func TestSnapshotsOfLargeJobsAreComplete(t *testing.T) {
	s, _ := jobsBed(t)
	_, keys := storeLargeJobs(t, s, 20)
	records, err := s.Get(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	jobs := make([]job.Record, len(records))
	for i, r := range records {
		jobs[i] = *r
	}
	snaps, err := s.Snapshots(t.Context(), 0, jobs)
	if err != nil {
		t.Fatal(err)
	}
	for i, snap := range snaps {
		if snap == nil || len(snap.Record.Definition.Payload) != 250_000 || snap.Record.Definition.Key != keys[i] {
			t.Errorf("snapshot of %s: %+v", keys[i], snap)
		}
	}
}

// failingPart is a hook that fails one read of definitions by name.
type failingPart struct{ reads, failAt *atomic.Int64 }

func (h failingPart) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h failingPart) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.fails(cmd) {
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}
func (h failingPart) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if h.fails(cmd) {
				return cmd.Err()
			}
		}
		return next(ctx, cmds)
	}
}

// fails reports whether a command is the read that is to fail: a script with one key, the definitions of a shard.
func (h failingPart) fails(cmd redis.Cmder) bool {
	args := cmd.Args()
	if len(args) < 4 || args[0] != "evalsha" || fmt.Sprint(args[2]) != "1" || !strings.HasSuffix(fmt.Sprint(args[3]), ":def") {
		return false
	}
	if h.reads.Add(1) != h.failAt.Load() {
		return false
	}
	cmd.SetErr(errors.New("failure"))
	return true
}

// TestAFailedPartIsReadAgain: a read in parts goes on after a part that failed, and does not begin anew.
func TestAFailedPartIsReadAgain(t *testing.T) {
	server := redistest.Start(t)
	client, err := conn.NewClient(conn.ClientOptions{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	s, err := redisstore.Open(t.Context(), redisstore.Options{Client: client, Shards: 4, AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	_, keys := storeLargeJobs(t, s, 60)
	var reads, failAt atomic.Int64
	client.(*redis.Client).AddHook(failingPart{&reads, &failAt})
	if _, err := s.Get(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	without := reads.Swap(0)
	failAt.Store(2)
	records, err := s.Get(t.Context(), keys)
	if err != nil || slices.Contains(records, nil) {
		t.Fatalf("after a part that failed: %v", err)
	}
	if without < 3 || reads.Load() != without+1 {
		t.Errorf("%d reads, and %d with a failed one", without, reads.Load())
	}
}
