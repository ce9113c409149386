package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// holdCreation starts a creation in shard 0 that stays in flight until the proxy passes: further ones wait for it.
func holdCreation(t *testing.T, proxy *faultproxy.Proxy, s *redisstore.Store, first job.Record) (result func() job.CreateReply) {
	t.Helper()
	stalled := proxy.Counters().Stalled
	proxy.Blackhole(faultproxy.Both)
	done := make(chan job.CreateReply, 1)
	go func() { done <- storetest.Create(t.Context(), s, 0, []job.Record{first}) }()
	redistest.Eventually(t, redistest.Patience, "a creation is in flight", func(context.Context) error {
		if proxy.Counters().Stalled == stalled {
			return errors.New("nothing is held")
		}
		return nil
	})
	return func() job.CreateReply { return <-done }
}

// TestCreationWhoseCallerLeaves: a caller that leaves while its creation waits for others has stored nothing, and the
// others have.
func TestCreationWhoseCallerLeaves(t *testing.T) {
	w, proxy, faulty, _ := behindProxy(t, redistest.Start(t))
	ids := w.InShard(0, 22)
	first := holdCreation(t, proxy, faulty, w.Record(storetest.Definition(ids[0])))
	ctx, cancel := context.WithCancel(t.Context())
	var leaving, staying sync.WaitGroup
	for i, id := range ids[1:] {
		record := w.Record(storetest.Definition(id))
		if i%2 == 0 {
			leaving.Go(func() {
				reply := storetest.Create(ctx, faulty, 0, []job.Record{record})
				if !errors.Is(reply.Err, context.Canceled) || !errors.Is(reply.Err, job.ErrUnavailable) {
					t.Errorf("%s left with %v", id, reply.Err)
				}
			})
			continue
		}
		staying.Go(func() {
			reply := storetest.Create(t.Context(), faulty, 0, []job.Record{record})
			if reply.Err != nil || reply.Results[0].Code != job.Created {
				t.Errorf("%s: %+v", id, reply)
			}
		})
	}
	cancel()
	leaving.Wait()
	proxy.Pass()
	staying.Wait()
	if reply := first(); reply.Err != nil {
		t.Error(reply.Err)
	}
	for i, id := range ids[1:] {
		if stored := w.Get(id) != nil; stored != (i%2 == 1) {
			t.Errorf("%s is stored: %v", id, stored)
		}
	}
}

// TestCreationsDoNotQueueForLong: while Redis does not answer, creations fail after the time that one may take, however
// many wait, and can be repeated. The error of those that were not sent says so.
func TestCreationsDoNotQueueForLong(t *testing.T) {
	server := redistest.Start(t)
	w, proxy := storetest.NewWorld(t, server.Client()), faultproxy.New(t, server.Addr())
	s := w.Open(func(o *redisstore.Options) {
		o.Client, o.OpTimeout = dialRedis(t, "redis://"+proxy.Addr()), 2*time.Second
	})
	ids := w.InShard(0, 41)
	records := make([]job.Record, len(ids))
	for i, id := range ids {
		d := storetest.Definition(id)
		d.Payload = make([]byte, 60<<10) // four share a script
		records[i] = w.Record(d)
	}
	first := holdCreation(t, proxy, s, records[0])
	errs := make([]error, len(ids))
	var creating sync.WaitGroup
	for i := range records[1:] {
		creating.Go(func() { errs[i+1] = storetest.Create(t.Context(), s, 0, records[i+1:i+2]).Err })
	}
	creating.Wait()
	errs[0] = first().Err
	unsent := 0
	for i, err := range errs {
		if !errors.Is(err, job.ErrUnavailable) {
			t.Errorf("%s: %v", ids[i], err)
		}
		if errors.Is(err, job.ErrNodeBusy) {
			unsent++
		}
	}
	if unsent < len(ids)/2 {
		t.Errorf("%d of %d creations failed without being sent", unsent, len(ids))
	}
	proxy.Pass()
	for i := range records {
		reply := callUntilAvailable(t, func() (job.CreateReply, error) {
			r := storetest.Create(t.Context(), s, 0, records[i:i+1])
			return r, r.Err
		})
		if reply.Results[0].Code != job.Created {
			t.Errorf("%s: %+v", ids[i], reply)
		}
	}
}

// TestSharedCreationsOfOneID: of callers who create different jobs with one id at a time, one creates its job, and the
// others get it. Those that create the same job, with a record that cannot be read in its place, all succeed.
func TestSharedCreationsOfOneID(t *testing.T) {
	const callers = 30
	w, proxy, faulty, _ := behindProxy(t, redistest.Start(t))
	ids := w.InShard(0, 3)
	w.Add(storetest.Definition(ids[2]))
	w.Client.HSet(t.Context(), w.Key(0, "st"), "ns/"+ids[2], "garbage")
	first := holdCreation(t, proxy, faulty, w.Record(storetest.Definition(ids[0])))
	replies := make([]job.CreateReply, callers)
	repairs := make([]job.CreateReply, callers)
	same := w.Record(storetest.Definition(ids[2]))
	var creating sync.WaitGroup
	for i := range callers {
		d := storetest.Definition(ids[1])
		d.Handler = fmt.Sprint("handler-", i)
		record := w.Record(d)
		creating.Go(func() { replies[i] = storetest.Create(t.Context(), faulty, 0, []job.Record{record}) })
		creating.Go(func() { repairs[i] = storetest.Create(t.Context(), faulty, 0, []job.Record{same}) })
	}
	proxy.Pass()
	creating.Wait()
	first()
	stored, created := w.Get(ids[1]), 0
	for i, r := range replies {
		switch {
		case r.Err != nil:
			t.Errorf("caller %d: %v", i, r.Err)
		case r.Results[0].Code == job.Created:
			created++
			if stored.Definition.Handler != fmt.Sprint("handler-", i) {
				t.Errorf("caller %d has created it, but its handler is %s", i, stored.Definition.Handler)
			}
		case !reflect.DeepEqual(r.Results[0].Existing.Definition, stored.Definition):
			t.Errorf("caller %d: exists as %+v", i, r.Results[0].Existing.Definition)
		}
	}
	if created != 1 {
		t.Errorf("%d callers have created it", created)
	}
	for i, r := range repairs {
		if r.Err != nil || r.Results[0].Code != job.Created && !reflect.DeepEqual(r.Results[0].Existing.State, same.State) {
			t.Errorf("caller %d: %+v", i, r)
		}
	}
}

// TestFailedCreationReportsItsLanes: where a call stores records and then fails, the holder of the shard is notified all
// the same.
func TestFailedCreationReportsItsLanes(t *testing.T) {
	server := redistest.Start(t)
	w, answerer := storetest.NewWorld(t, server.Client()), faultproxy.NewAnswerer(t, server.Addr())
	ids := w.InShard(0, 2)
	taken, added := storetest.Definition(ids[0]), storetest.Once(ids[1], time.Second)
	w.Add(taken) // the server has the scripts by now
	if w.Get(taken.ID) == nil {
		t.Fatal("it is not stored")
	}
	type notification struct {
		shard  int
		heads  []job.LaneHead
		holder string
	}
	var got []notification
	s := w.Open(func(o *redisstore.Options) {
		o.Client = dialRedis(t, "redis://"+answerer.Addr())
		o.OnLanesDueEarlier = func(shard int, heads []job.LaneHead, holder string) {
			got = append(got, notification{shard, heads, holder})
		}
	})
	other := taken
	other.Handler = "another"
	added.Queue = "other"
	record := w.Record(added)
	answerer.FailNext(1, 1, "ERR broken", "evalsha") // the read of the job that has the id
	reply := storetest.Create(t.Context(), s, 0, []job.Record{record, w.Record(other)})
	if reply.Err == nil || answerer.FailedCount() != 1 || w.Get(added.ID) == nil {
		t.Fatalf("%+v, with %d failures", reply, answerer.FailedCount())
	}
	holder, err := w.Client.Get(t.Context(), w.Store.LockKey(0)).Result()
	if err != nil {
		t.Fatal(err)
	}
	lane := storetest.Lane()
	lane.Queue = "other"
	want := []notification{{0, []job.LaneHead{{Lane: lane, DueMS: record.IndexMS}}, holder}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("reported %+v, want %+v", got, want)
	}
}
