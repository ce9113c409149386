package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// passing are the errors that servers give while they fail over, load, move slots
// or are busy: the call goes on with the same identity, as long as it has time.
var passing = []string{
	"READONLY You can't write against a read only replica.",
	"MOVED 3999 127.0.0.1:1",
	"TRYAGAIN Multiple keys request during rehashing of slot",
	"CLUSTERDOWN The cluster is down",
	"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	"LOADING Redis is loading the dataset in memory",
	"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
	"NOREPLICAS Not enough good replicas to write.",
	"ERR max number of clients reached",
}

// lasting are errors that a repeat does not help.
var lasting = map[string]error{
	"OOM command not allowed when used memory > 'maxmemory'.":                   job.ErrNoMemory,
	"MISCONF Redis is configured to save RDB snapshots, but it's unable to":     job.ErrUnavailable,
	"NOPERM this user has no permissions to run the 'evalsha' command":          job.ErrUnavailable,
	"NOAUTH Authentication required.":                                           job.ErrUnavailable,
	"WRONGTYPE Operation against a key holding the wrong kind of value":         nil,
	"ERR value is not an integer or out of range script: 0, on @user_script:1.": nil,
}

// storeCommands are all that carry calls of the store.
var storeCommands = []string{"evalsha", "eval", "hmget", "hscan", "hgetall", "zscore", "zrange", "zcount"}

// TestErrorsOfServers answers each kind of call with each error: before it had its
// effect, after it had it without anybody learning, and for good. Each effect takes
// place once or, when the call fails, not at all.
func TestErrorsOfServers(t *testing.T) {
	server := redistest.Start(t)
	for _, text := range passing {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			b := newAnswerBed(t, server)
			for _, c := range b.answerCalls() {
				b.checkRefused(c, text, job.ErrUnavailable)
				b.checkDelayed(c, text)
			}
			b = newAnswerBed(t, server)
			for _, c := range b.answerCalls() {
				b.checkDoubted(c, text)
			}
		})
	}
	for text, as := range lasting {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			b := newAnswerBed(t, server)
			for _, c := range b.answerCalls() {
				b.checkRefused(c, text, as)
				b.checkPasses(c)
			}
		})
	}
}

// answerBed is a keyspace behind a server that answers what the test sets.
type answerBed struct {
	t        *testing.T
	w        *storetest.World
	s        *redisstore.Store // through both proxies
	answerer *faultproxy.Answerer
	cuts     *faultproxy.Proxy
}

func newAnswerBed(t *testing.T, server *redistest.Server) *answerBed {
	b := &answerBed{t: t, w: storetest.NewWorld(t, server.Client(), asOptions(t, server.URL())), cuts: faultproxy.New(t, server.Addr())}
	b.answerer = faultproxy.NewAnswerer(t, b.cuts.Addr())
	client := dialRedis(t, "redis://"+b.answerer.Addr())
	b.s = b.w.Open(func(o *redisstore.Options) { o.Client = client })
	return b
}

// answerCall is one call of the store. check returns what is wrong about its effect.
type answerCall struct {
	name  string
	call  func(context.Context) error
	check func() error
}

// checkRefused: the error does not go away.
func (b *answerBed) checkRefused(c answerCall, text string, as error) {
	b.t.Helper()
	before, said := b.listStored(), b.answerer.FailedCount()
	b.answerer.FailNext(0, math.MaxInt, text, storeCommands...)
	var err error
	wanted := func() bool {
		if as == nil {
			return err != nil && !errors.Is(err, job.ErrUnavailable)
		}
		return errors.Is(err, as)
	}
	// A machine that stands still for a moment may leave no time for an answer to
	// be given, or to be read.
	for limit := 25 * time.Millisecond; (b.answerer.FailedCount() == said || !wanted()) && limit < 10*time.Second; limit *= 4 {
		ctx, cancel := context.WithTimeout(b.t.Context(), limit)
		err = c.call(ctx)
		cancel()
	}
	b.answerer.Cut() // or a try whose time ran out may arrive when errors have ended
	b.answerer.FailNext(0, 0, "")
	if !wanted() {
		b.t.Errorf("%s: refused with %v, want %v", c.name, err, as)
	}
	if b.answerer.FailedCount() == said {
		b.t.Errorf("%s: nothing was answered", c.name)
	}
	if after := b.listStored(); !slices.Equal(before, after) {
		b.t.Errorf("%s: refused, but something changed", c.name)
	}
}

// checkDelayed: the error goes away, and the call goes through.
func (b *answerBed) checkDelayed(c answerCall, text string) {
	b.t.Helper()
	said := b.answerer.FailedCount()
	b.answerer.FailNext(0, 2, text, storeCommands...)
	b.checkPasses(c)
	if got := b.answerer.FailedCount() - said; got != 2 {
		b.t.Errorf("%s: %d commands were answered, want 2", c.name, got)
	}
}

// checkDoubted: the first answer is lost after the effect, the second is the error.
func (b *answerBed) checkDoubted(c answerCall, text string) {
	b.t.Helper()
	if _, err := b.s.Now(b.t.Context(), 0); err != nil { // a connection is open
		b.t.Fatal(err)
	}
	said, cut := b.answerer.FailedCount(), b.cuts.Counters().Cut
	b.answerer.FailNext(1, 1, text, storeCommands...)
	b.cuts.CutNextReplies(1)
	b.checkPasses(c)
	if b.answerer.FailedCount()-said != 1 || b.cuts.Counters().Cut-cut != 1 {
		b.t.Errorf("%s: not hit as it should be", c.name)
	}
}

// checkPasses makes the call and wants its effect.
func (b *answerBed) checkPasses(c answerCall) {
	b.t.Helper()
	if err := c.call(b.t.Context()); err != nil {
		b.t.Fatalf("%s: %v", c.name, err)
	}
	if c.check == nil {
		return
	}
	if err := c.check(); err != nil {
		b.t.Errorf("%s: %v", c.name, err)
	}
}

// listStored is everything in the keyspace, byte for byte.
func (b *answerBed) listStored() []string {
	b.t.Helper()
	ctx := b.t.Context()
	keys, err := b.w.Client.Keys(ctx, b.w.Prefix+":*").Result()
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(keys)
	var all []string
	for _, key := range keys {
		dump, err := b.w.Client.Dump(ctx, key).Result()
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, key, dump)
	}
	return all
}

func wantEqual[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s is %v, want %v", what, got, want)
	}
	return nil
}
