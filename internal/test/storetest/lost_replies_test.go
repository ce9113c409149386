package storetest_test

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// TestOneLostReplyOfTwoWrites loses the first answer to each write of a run that is
// a record of its own: it gets the result that both of its records were written.
func TestOneLostReplyOfTwoWrites(t *testing.T) {
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr())
	w := storetest.NewWorld(t, server.Client())
	s := w.Open(func(o *redisstore.Options) { o.Client = dialRedis(t, "redis://"+proxy.Addr()) })
	lost := int64(0)
	apply := func(writes ...job.Write) {
		t.Helper()
		proxy.CutNextReplies(1)
		lost++
		r := s.Apply(t.Context(), 0, writes)
		if cut := proxy.Counters().Cut; cut != lost {
			t.Errorf("%d answers were cut, want %d", cut, lost)
		}
		for i, result := range r.Results {
			if result.Code != job.Written {
				t.Errorf("write of %s: %+v", writes[i].Record, result)
			}
		}
		if r.Err != nil || len(r.Results) != len(writes) {
			t.Errorf("apply: %+v", r)
		}
	}
	d := storetest.Overlapping(w.InShard(0, 1)[0])
	w.Add(d)
	live := w.Spawn(d, 1) // slot 0
	w.Clock.Store(int64(w.Get(d.ID).IndexMS))
	leased := w.Lease(0, 1)[0]
	apply(w.Decide(leased.Record, &d, leased.Known.State, job.RunLeased{Token: leased.Known.State.Token})) // slot 1
	apply(w.Family(live[0].Record, job.ReturnLease{Token: live[0].Known.State.Token})...)
	run := w.Lease(0, 1)[0]
	apply(w.Family(run.Record, job.FinishAttempt{Token: run.Known.State.Token, Outcome: job.OutcomeFailed, StartedMS: unixtime.Milli(w.Clock.Load())})...)
	apply(w.Family(d.Record().Letter(0), job.Redrive{})...) // into slot 0
	parent := w.Get(d.ID)
	apply(w.Decide(d.Record(), &d, parent.State, job.Delete{}))
	apply(w.Family(d.Record().Run(0), job.CancelRun{RunID: w.Records(d.Record().Run(0))[0].State.RunID()})...)
	// The last one takes its job with it: neither is left to be compared.
	apply(w.Family(d.Record().Run(1), job.FinishAttempt{Token: leased.Known.State.Token, Outcome: job.OutcomeSucceeded, StartedMS: unixtime.Milli(w.Clock.Load())})...)
	if left := w.Get(d.ID); left != nil {
		t.Errorf("left %+v", left)
	}
}

// TestLostRepliesInRandomHistories cuts one answer in ten through a whole random
// history, in which every call has one right answer.
func TestLostRepliesInRandomHistories(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr())
	w := storetest.NewWorld(t, server.Client())
	direct := w.Store
	w.Store = w.Open(func(o *redisstore.Options) {
		o.Client, o.OpTimeout = dialRedis(t, "redis://"+proxy.Addr()), time.Minute
	})
	proxy.CutReplies(0.1)
	storetest.Random(w)
	w.Store = direct
	if cut := proxy.Counters().Cut; cut < 200 {
		t.Errorf("only %d answers were cut", cut)
	}
}
