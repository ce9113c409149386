package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

func embedded(t testing.TB, adjust ...func(*Options)) (*Store, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	client, err := conn.NewClient(conn.ClientOptions{URL: "redis://" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	o := Options{Client: client, Shards: 2}
	for _, f := range adjust {
		f(&o)
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s, server
}

func TestBatchSlots(t *testing.T) {
	var b batchSlots
	first, second := b.acquire("a"), b.acquire("b")
	if first == second {
		t.Fatal("two calls in flight share a place")
	}
	b.release(first, false)
	b.release(second, true)
	if got := b.acquire("a"); got != first {
		t.Errorf("a failed batch had place %d, its repeat has %d", first, got)
	}
	b.release(first, true)
	for i := range 100 {
		b.release(b.acquire(fmt.Sprint("lost-", i)), false)
	}
	if len(b.slots) > maxRememberedBatches {
		t.Errorf("%d places", len(b.slots))
	}
}

// TestCreateReplacesOnlyWhatItSaw: a record that was unreadable when it was read,
// but has changed since, is not overwritten.
func TestCreateReplacesOnlyWhatItSaw(t *testing.T) {
	s, server := embedded(t)
	server.HSet(s.shards[0].state, "ns/job", "changed")
	r := &newRecord{id: "ns/job", state: "new", def: []byte("new"), replaces: "garbage"}
	o, _ := s.createOp(0, []*newRecord{r})
	if err := s.runAndWrap(t.Context(), o); err != nil || o.reply.textAt(2) != "1" {
		t.Errorf("answer %v (%v)", o.reply, err)
	}
	r.replaces = "changed"
	o, _ = s.createOp(0, []*newRecord{r})
	if err := s.runAndWrap(t.Context(), o); err != nil || o.reply.textAt(2) != "0" {
		t.Errorf("answer %v (%v)", o.reply, err)
	}
}

func TestClassify(t *testing.T) {
	reply := func(text string) error { return answer(text) }
	tests := []struct {
		err        error
		kind       string
		as         error
		retry, ran bool
	}{
		{reply("READONLY You can't write against a read only replica."), "readonly", job.ErrUnavailable, true, false},
		{reply("MOVED 3999 127.0.0.1:6381"), "moved", job.ErrUnavailable, true, false},
		{reply("LOADING Redis is loading the dataset in memory"), "loading", job.ErrUnavailable, true, false},
		{reply("BUSY Redis is busy running a script."), "busy", job.ErrUnavailable, true, false},
		{reply("OOM command not allowed when used memory > 'maxmemory'."), "oom", job.ErrNoMemory, false, false},
		{reply("NOREPLICAS Not enough good replicas to write."), "noreplicas", job.ErrUnavailable, true, false},
		{reply("TRYAGAIN Multiple keys request during rehashing of slot"), "tryagain", job.ErrUnavailable, true, false},
		{reply("CLUSTERDOWN The cluster is down"), "clusterdown", job.ErrUnavailable, true, false},
		{reply("MASTERDOWN Link with MASTER is down"), "masterdown", job.ErrUnavailable, true, false},
		{reply("NOPERM this user has no permissions to run the 'hset' command"), "denied", job.ErrUnavailable, false, false},
		{reply("ERR The user executing the script can't run this command or subcommand script: x"), "denied", job.ErrUnavailable, false, false},
		{reply("ERR max number of clients reached"), "maxclients", job.ErrUnavailable, true, false},
		{reply("WRONGTYPE Operation against a key holding the wrong kind of value"), "script", nil, false, false},
		{reply("ERR user_script:12: attempt to index nil"), "script", nil, false, false},
		{io.EOF, "connection", job.ErrUnavailable, true, true},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, "connection", job.ErrUnavailable, true, true},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, "dial", job.ErrUnavailable, true, false},
		{context.DeadlineExceeded, "timeout", job.ErrUnavailable, true, true},
		{redis.ErrPoolTimeout, "pool", job.ErrUnavailable, true, false},
		{redis.ErrClosed, "closed", job.ErrUnavailable, false, false},
		{rediserr.ErrUnconfirmed, "unconfirmed", job.ErrDurability, false, false},
		{job.ErrNotHolder, "refused", nil, false, false},
	}
	for _, tt := range tests {
		v := rediserr.Classify(tt.err)
		if v.Kind != tt.kind || v.Sentinel != tt.as || v.Retry != tt.retry || v.MayHaveRun != tt.ran {
			t.Errorf("%v: %+v", tt.err, v)
		}
		if err := rediserr.Wrap("call", tt.err); !errors.Is(err, tt.err) || tt.as != nil && !errors.Is(err, tt.as) {
			t.Errorf("%v is wrapped as %v", tt.err, err)
		}
	}
}

// answer is an error as a server sends it.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

func TestOptions(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	for _, o := range []Options{
		{}, {Client: client, Prefix: "a{b}"}, {Client: client, Shards: -1}, {Client: client, Shards: MaxShards + 1},
		{Client: client, Durability: 9}, {Client: client, Replicas: -1}, {Client: client, WaitTimeout: 1}, {Client: client, OpTimeout: -1},
	} {
		if _, err := Open(t.Context(), o); err == nil || errors.Is(err, job.ErrUnavailable) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for name, want := range map[string]conn.Durability{"memory": conn.DurabilityMemory, "Local": conn.DurabilityLocal, "replica": conn.DurabilityReplica} {
		if got, err := conn.ParseDurability(name); err != nil || got != want || !strings.EqualFold(got.String(), name) {
			t.Errorf("%s is %v (%v)", name, got, err)
		}
	}
	if _, err := conn.ParseDurability("disk"); err == nil {
		t.Error("durability disk exists")
	}
}

// TestShed: a call that gets no connection fails when its patience with the pool
// ends, if the store sheds, and stands in line again if it does not.
func TestShed(t *testing.T) {
	for _, shed := range []bool{true, false} {
		m, err := newMetrics(nil)
		if err != nil {
			t.Fatal(err)
		}
		s := &Store{metrics: m}
		if shed {
			s.maxQueueWait = time.Second
		}
		left := s.opsToRetry([]*op{{err: redis.ErrPoolTimeout}, {err: io.EOF}})
		if want := map[bool]int{true: 1, false: 2}[shed]; len(left) != want {
			t.Errorf("shed %v: %d of 2 calls are tried again, want %d", shed, len(left), want)
		}
	}
}
