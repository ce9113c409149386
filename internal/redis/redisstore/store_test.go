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
)

func embedded(t testing.TB, adjust ...func(*Options)) (*Store, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	client, err := NewClient(ClientOptions{URL: "redis://" + server.Addr()})
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
	first, second := b.take("a"), b.take("b")
	if first == second {
		t.Fatal("two calls in flight share a place")
	}
	b.give(first, false)
	b.give(second, true)
	if got := b.take("a"); got != first {
		t.Errorf("a failed batch had place %d, its repeat has %d", first, got)
	}
	b.give(first, true)
	for i := range 100 {
		b.give(b.take(fmt.Sprint("lost-", i)), false)
	}
	if len(b.slots) > manySlots {
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
	if err := s.perform(t.Context(), o); err != nil || o.reply.text(2) != "1" {
		t.Errorf("answer %v (%v)", o.reply, err)
	}
	r.replaces = "changed"
	o, _ = s.createOp(0, []*newRecord{r})
	if err := s.perform(t.Context(), o); err != nil || o.reply.text(2) != "0" {
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
		{errUnconfirmed, "unconfirmed", job.ErrDurability, false, false},
		{job.ErrNotHolder, "refused", nil, false, false},
	}
	for _, tt := range tests {
		v := classify(tt.err)
		if v.kind != tt.kind || v.as != tt.as || v.retry != tt.retry || v.ran != tt.ran {
			t.Errorf("%v: %+v", tt.err, v)
		}
		if err := wrap("call", tt.err); !errors.Is(err, tt.err) || tt.as != nil && !errors.Is(err, tt.as) {
			t.Errorf("%v is wrapped as %v", tt.err, err)
		}
	}
}

// answer is an error as a server sends it.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

func TestPreflightJudgement(t *testing.T) {
	good := "redis_version:7.2.11\r\nrole:master\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n" +
		"slave0:ip=10.0.0.2,port=6379,state=online,offset=1,lag=0\r\nmin_slaves_good_slaves:1\r\n"
	tests := []struct {
		name, info string
		demand     Durability
		class      Durability
		codes      string
		worst      Severity
	}{
		{"good", good, DurabilityReplica, DurabilityReplica, "", Info},
		{"old", strings.Replace(good, "7.2.11", "6.2.14", 1), DurabilityMemory, DurabilityReplica, "version", Fatal},
		{"two digits", strings.Replace(good, "7.2.11", "10.0.1", 1), DurabilityMemory, DurabilityReplica, "", Info},
		{"replica", strings.Replace(good, "role:master", "role:slave", 1), DurabilityMemory, DurabilityReplica, "role", Fatal},
		{"evicts", strings.Replace(good, "noeviction", "allkeys-lru", 1), DurabilityMemory, DurabilityReplica, "eviction", Fatal},
		{"no limit", strings.Replace(good, "maxmemory:1000", "maxmemory:0", 1), DurabilityMemory, DurabilityReplica, "maxmemory", Info},
		{"memory", strings.Replace(good, "aof_enabled:1", "aof_enabled:0", 1), DurabilityMemory, DurabilityMemory, "no_persistence", Warning},
		{"broken disk", good + "aof_last_write_status:err\r\n", DurabilityLocal, DurabilityReplica, "aof_error", Fatal},
		{"alone", strings.Replace(good, "online", "wait_bgsave", 1), DurabilityReplica, DurabilityLocal, "replicas durability", Fatal},
		{"no minimum", strings.Replace(good, "min_slaves", "x", 1), DurabilityReplica, DurabilityLocal, "min_replicas durability", Fatal},
		{"no minimum is demanded", strings.Replace(good, "min_slaves", "x", 1), DurabilityLocal, DurabilityLocal, "min_replicas", Info},
		{"embedded", "connected_clients:1\r\n", DurabilityMemory, DurabilityMemory, "embedded", Warning},
		{"loads nothing", good + "replay:refused\r\n", DurabilityReplica, DurabilityMemory, "default_user", Fatal},
		{"does not say what it loads", good + "replay:unknown\r\n", DurabilityReplica, DurabilityReplica, "default_user", Info},
		{"does not say, and is alone", strings.Replace(good, "online", "wait_bgsave", 1) + "replay:unknown\r\n", DurabilityReplica, DurabilityLocal, "default_user replicas durability", Fatal},
	}
	for _, tt := range tests {
		r := Report{Class: DurabilityReplica}
		o := Options{Durability: tt.demand, Replicas: 1}
		i := parseInfo("", "# Server\r\n"+tt.info)
		switch i.text("replay") {
		case "refused":
			i.replay.refused = "set"
		case "unknown":
			i.replay.unknown = errors.New("NOPERM")
		}
		r.judge(i, o)
		r.conclude(o)
		var codes []string
		for _, f := range r.Findings {
			codes = append(codes, f.Code)
			if f.Text == "" {
				t.Errorf("%s: finding %s says nothing", tt.name, f.Code)
			}
		}
		if r.Class != tt.class || strings.Join(codes, " ") != tt.codes || r.Worst() != tt.worst {
			t.Errorf("%s: class %s, findings %v, worst %s", tt.name, r.Class, codes, r.Worst())
		}
	}
}

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
	for name, want := range map[string]Durability{"memory": DurabilityMemory, "Local": DurabilityLocal, "replica": DurabilityReplica} {
		if got, err := ParseDurability(name); err != nil || got != want || !strings.EqualFold(got.String(), name) {
			t.Errorf("%s is %v (%v)", name, got, err)
		}
	}
	if _, err := ParseDurability("disk"); err == nil {
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
			s.shedAfter = time.Second
		}
		left := s.again([]*op{{err: redis.ErrPoolTimeout}, {err: io.EOF}})
		if want := map[bool]int{true: 1, false: 2}[shed]; len(left) != want {
			t.Errorf("shed %v: %d of 2 calls are tried again, want %d", shed, len(left), want)
		}
	}
}
