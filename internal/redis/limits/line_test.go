package limits

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// testUnitsFair: units go to waiters by rank, against whoever barges in, and a woken
// waiter that does not come gives way.
func testUnitsFair(t *testing.T, w limitWorld) {
	s, clock := w.virtual(t)
	acquire(t, s, waiting("n", 1, "holder", 0))
	ranks := rand.New(rand.NewPCG(1, 2)).Perm(20)
	name := func(rank int) string { return fmt.Sprintf("w%02d", rank) }
	for _, r := range ranks {
		if g := acquire(t, s, waiting("n", 1, job.RecordID(name(r)), int64(r)-10)); g.Granted {
			t.Fatalf("%d: %+v", r, g)
		}
	}
	holder := job.RecordID("holder")
	for rank := range 20 {
		expectWoken(t, release(t, s, "n", 1, string("1@"+holder)), job.RecordID(name(rank)))
		clock.pass(time.Second)
		barger := acquire(t, s, waiting("n", 1, "barger", -1000))
		if barger.Granted || barger.By != name(rank) || barger.SinceMS != unixtime.Milli(clock.Load()-1000) {
			t.Fatalf("while %s has its reservation: %+v", name(rank), barger)
		}
		if r := s.ReleaseUnits(t.Context(), []job.UnitRelease{{Name: "n", Limit: 1, Waiter: "barger"}})[0]; r.Err != nil || len(r.Woken) > 0 {
			t.Fatalf("the barger leaves: %+v", r)
		}
		holder = job.RecordID(name(rank))
		if g := acquire(t, s, waiting("n", 1, holder, int64(rank))); !g.Granted {
			t.Fatalf("%s has been woken: %+v", holder, g)
		}
	}
	for i, record := range []job.RecordID{"x", "y", "z"} {
		acquire(t, s, waiting("n", 1, record, int64(i)))
	}
	expectWoken(t, release(t, s, "n", 1, string("1@"+holder)), "x")
	if g := acquire(t, s, waiting("n", 1, "y", 1)); g.Granted {
		t.Fatalf("y is not first: %+v", g)
	}
	clock.pass(2 * time.Second)
	if g := acquire(t, s, waiting("n", 1, "y", 1)); !g.Granted {
		t.Fatalf("x did not come: %+v", g)
	}
	expectWoken(t, release(t, s, "n", 1, "1@y"), "z")
	// One that was woken but waits no longer hands its reservation on.
	acquire(t, s, waiting("n", 1, "last", 9))
	r := s.ReleaseUnits(t.Context(), []job.UnitRelease{{Name: "n", Limit: 1, Waiter: "z"}})[0]
	expectWoken(t, r.Woken, "last")
}

// testUnitsForgetWaiters: those that have not asked for a minute are passed over,
// however many they are.
func testUnitsForgetWaiters(t *testing.T, w limitWorld) {
	s, clock := w.virtual(t)
	hold := job.UnitRequest{Name: "n", Limit: 1, Holder: "holder", TTL: time.Hour}
	acquire(t, s, hold)
	var asks []job.UnitRequest
	for i := range 150 {
		asks = append(asks, waiting("n", 1, job.RecordID(fmt.Sprint("gone", i)), int64(i)))
	}
	s.AcquireUnits(t.Context(), asks)
	clock.pass(30 * time.Second)
	acquire(t, s, waiting("n", 1, "present", 1000))
	clock.pass(31 * time.Second)
	expectWoken(t, release(t, s, "n", 1, "holder"), "present")
}

// testUnitsBoundLine: the line has an end, and those in it keep their places.
func testUnitsBoundLine(t *testing.T, w limitWorld) {
	s, clock := w.virtual(t)
	acquire(t, s, job.UnitRequest{Name: "n", Limit: 1, Holder: "holder", TTL: time.Hour})
	base := s.shards[s.homeShard("n")].Base
	ranks, times := make([]redis.Z, 9999), make([]redis.Z, 9999)
	for i := range ranks {
		name := fmt.Sprint("w", i)
		ranks[i] = redis.Z{Member: name, Score: float64(i)}
		times[i] = redis.Z{Member: name, Score: float64(clock.Load())}
	}
	s.client.ZAdd(t.Context(), base+"w:n", ranks...)
	s.client.ZAdd(t.Context(), base+"q:n", times...)
	acquire(t, s, waiting("n", 1, "w9999", 9999))
	acquire(t, s, waiting("n", 1, "late", -1))
	acquire(t, s, waiting("n", 1, "w9999", -2))
	expectWoken(t, release(t, s, "n", 1, "holder"), "w9999")
	if n := s.client.ZCard(t.Context(), base+"w:n").Val(); n != 9999 {
		t.Errorf("%d wait", n)
	}
	acquire(t, s, waiting("n", 1, "late", -1))
	if r := s.ReleaseUnits(t.Context(), []job.UnitRelease{{Name: "n", Limit: 1, Waiter: "w9999"}})[0]; r.Err != nil || !slices.Equal(r.Woken, []job.RecordID{"late"}) {
		t.Errorf("once there is a place: %+v", r)
	}
	if r := s.ReleaseUnits(t.Context(), []job.UnitRelease{{Name: "n", Limit: 5000, Waiter: "late"}})[0]; r.Err != nil || len(r.Woken) != 100 {
		t.Errorf("%d are woken at once (%v)", len(r.Woken), r.Err)
	}
}
