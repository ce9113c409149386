package limits

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func acquire(t testing.TB, s limitBed, ask job.UnitRequest) job.UnitGrant {
	t.Helper()
	g := s.AcquireUnits(t.Context(), []job.UnitRequest{ask})[0]
	if g.Err != nil {
		t.Fatalf("%+v: %v", ask, g.Err)
	}
	return g
}

func release(t testing.TB, s limitBed, name string, limit int, holder string) []job.RecordID {
	t.Helper()
	r := s.ReleaseUnits(t.Context(), []job.UnitRelease{{Name: name, Limit: limit, Holder: holder}})[0]
	if r.Err != nil {
		t.Fatalf("release of %s by %s: %v", name, holder, r.Err)
	}
	return r.Woken
}

// waiting is an ask of a record that waits.
func waiting(name string, limit int, record job.RecordID, rank int64) job.UnitRequest {
	return job.UnitRequest{Name: name, Limit: limit, Holder: string("1@" + record), Waiter: record, Rank: rank, TTL: 10 * time.Second}
}

func expectWoken(t testing.TB, got []job.RecordID, want ...job.RecordID) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("woken %v, want %v", got, want)
	}
}

func room(t testing.TB, s limitBed, name string, limit, want int) {
	t.Helper()
	if got, err := s.FreeUnits(t.Context(), name, limit); err != nil || got != want {
		t.Fatalf("room %d (%v), want %d", got, err, want)
	}
}

func testUnits(t *testing.T, w limitWorld) {
	s, clock := w.virtual(t)
	start := clock.Load()
	a, b, c := waiting("n", 2, "a", 1), waiting("n", 2, "b", 2), waiting("n", 2, "c", 3)
	room(t, s, "n", 2, 2)
	if g := acquire(t, s, a); g != (job.UnitGrant{Granted: true, SinceMS: unixtime.Milli(start), NowMS: unixtime.Milli(start)}) {
		t.Fatalf("first: %+v", g)
	}
	clock.pass(time.Second)
	if g := acquire(t, s, b); !g.Granted || g.SinceMS != unixtime.Milli(start+1000) {
		t.Fatalf("second: %+v", g)
	}
	room(t, s, "n", 2, 0)
	clock.pass(time.Second)
	if g := acquire(t, s, c); g != (job.UnitGrant{By: "1@a", SinceMS: unixtime.Milli(start), NowMS: unixtime.Milli(start + 2000), FreeMS: unixtime.Milli(start + 10_000)}) {
		t.Fatalf("third: %+v", g)
	}
	if g := acquire(t, s, a); !g.Granted || g.SinceMS != unixtime.Milli(start) {
		t.Fatalf("first again: %+v", g)
	}
	// Asking again has prolonged it, so that now the other one goes first.
	if g := acquire(t, s, c); g.By != "1@b" || g.SinceMS != unixtime.Milli(start+1000) {
		t.Fatalf("third again: %+v", g)
	}
	if g := acquire(t, s, waiting("other", 1, "c", 1)); !g.Granted {
		t.Fatalf("another name: %+v", g)
	}
	expectWoken(t, release(t, s, "n", 2, "1@a"), "c")
	room(t, s, "n", 2, 1) // reserved, but not held
	expectWoken(t, release(t, s, "n", 2, "1@a"), "c")
	if g := acquire(t, s, c); !g.Granted {
		t.Fatalf("the woken one: %+v", g)
	}
	expectWoken(t, release(t, s, "n", 2, "1@a"))
	expectWoken(t, release(t, s, "n", 2, "1@b"))
	expectWoken(t, release(t, s, "n", 2, "1@c"))
	room(t, s, "n", 2, 2)
	rooms, err := s.FreeUnitsOf(t.Context(), []job.UnitRequest{{Name: "other", Limit: 3}, {Name: "n", Limit: 5}, {Name: "other", Limit: 0}})
	if err != nil || !slices.Equal(rooms, []int{2, 5, 0}) {
		t.Errorf("rooms %v (%v)", rooms, err)
	}
	// A lower limit takes nothing away, but grants nothing either.
	for _, h := range []string{"x", "y", "z"} {
		acquire(t, s, job.UnitRequest{Name: "shrinks", Limit: 3, Holder: h, TTL: time.Minute})
	}
	if g := acquire(t, s, waiting("shrinks", 2, "w", 0)); g.Granted {
		t.Errorf("granted over the limit: %+v", g)
	}
	expectWoken(t, release(t, s, "shrinks", 2, "x"))
	expectWoken(t, release(t, s, "shrinks", 2, "y"), "w")
}

// testUnitsLapse: a unit that is not kept belongs to whoever asks next, and its
// former holder is told.
func testUnitsLapse(t *testing.T, w limitWorld) {
	s, clock := w.virtual(t)
	keep := func(holders ...string) []string {
		t.Helper()
		var keeps []job.UnitRenewal
		for _, h := range holders {
			keeps = append(keeps, job.UnitRenewal{Name: "n", Holder: h, TTL: 10 * time.Second})
		}
		lost, err := s.RenewUnits(t.Context(), keeps)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, u := range lost {
			names = append(names, u.Holder)
		}
		return names
	}
	a, b, c := waiting("n", 2, "a", 1), waiting("n", 2, "b", 2), waiting("n", 2, "c", 3)
	acquire(t, s, a)
	acquire(t, s, b)
	clock.pass(9999 * time.Millisecond)
	if lost := keep("1@a"); lost != nil {
		t.Fatalf("lost %v", lost)
	}
	if g := acquire(t, s, c); g.Granted {
		t.Fatalf("a millisecond early: %+v", g)
	}
	clock.pass(time.Millisecond)
	if lost := keep("1@a", "1@b", "1@nobody"); !slices.Equal(lost, []string{"1@b", "1@nobody"}) {
		t.Fatalf("lost %v", lost)
	}
	if g := acquire(t, s, c); !g.Granted {
		t.Fatalf("after it lapsed: %+v", g)
	}
	if g := acquire(t, s, b); g.Granted {
		t.Fatalf("the one that lost it: %+v", g)
	}
	// Keeping never shortens.
	short := job.UnitRenewal{Name: "n", Holder: "1@c", TTL: time.Millisecond}
	if lost, err := s.RenewUnits(t.Context(), []job.UnitRenewal{short}); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	clock.pass(time.Second)
	room(t, s, "n", 2, 0)
	// Releasing what has lapsed still wakes whoever waits.
	clock.pass(time.Minute - time.Second - time.Millisecond)
	expectWoken(t, release(t, s, "n", 2, "1@a"), "b")
}

// testUnitsExpiry: Redis clears away the keys of a name that is not used any more,
// long after everything in it has lapsed; and nothing is left of one that was given
// back.
func testUnitsExpiry(t *testing.T, w limitWorld) {
	s := w.store(t)
	acquire(t, s, waiting("n", 1, "a", 1))
	acquire(t, s, waiting("n", 1, "b", 2))
	base := s.shards[s.homeShard("n")].Base
	for _, suffix := range unitKeys {
		if ttl := s.client.PTTL(t.Context(), base+suffix+"n").Val(); ttl < 119*time.Hour || ttl > 120*time.Hour {
			t.Errorf("%s is cleared away in %v", suffix, ttl)
		}
	}
	acquire(t, s, waiting("n", 2, "b", 2)) // there are two now: it leaves the line unwoken
	if n := s.client.Del(t.Context(), base+"w:n", base+"q:n").Val(); n != 0 {
		t.Error("it is still in line")
	}
	expectWoken(t, release(t, s, "n", 2, "1@a"))
	expectWoken(t, release(t, s, "n", 2, "1@b"))
	for _, suffix := range unitKeys {
		if n := s.client.Del(t.Context(), base+suffix+"n").Val(); n != 0 {
			t.Errorf("%s is left", suffix)
		}
	}
}

func testUnitFaults(t *testing.T, w limitWorld) {
	s, _ := w.virtual(t)
	long := string(make([]byte, maxLimitName+1))
	good := waiting("n", 1, "a", 1)
	for _, spoil := range []func(*job.UnitRequest){
		func(a *job.UnitRequest) { a.Name = "" },
		func(a *job.UnitRequest) { a.Name = long },
		func(a *job.UnitRequest) { a.Holder = "" },
		func(a *job.UnitRequest) { a.Holder = long },
		func(a *job.UnitRequest) { a.Waiter = job.RecordID(long) },
		func(a *job.UnitRequest) { a.Limit = 0 },
		func(a *job.UnitRequest) { a.TTL = 0 },
		func(a *job.UnitRequest) { a.TTL = 25 * time.Hour },
	} {
		bad := good
		spoil(&bad)
		if g := s.AcquireUnits(t.Context(), []job.UnitRequest{bad})[0]; g.Err == nil {
			t.Errorf("%.80v is accepted", bad)
		}
	}
	if lost, err := s.RenewUnits(t.Context(), []job.UnitRenewal{{Name: "n", Holder: "a"}}); err == nil || len(lost) > 0 {
		t.Errorf("keep without TTL: %v, %v", lost, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if g := s.AcquireUnits(ctx, []job.UnitRequest{good})[0]; !errors.Is(g.Err, job.ErrUnavailable) || g.Granted {
		t.Errorf("without time: %+v", g)
	}
	if n, err := s.FreeUnits(ctx, "n", 5); !errors.Is(err, job.ErrUnavailable) || n != 0 {
		t.Errorf("room without time: %d (%v)", n, err)
	}
	if r := s.ReleaseUnits(ctx, []job.UnitRelease{{Name: "n", Holder: "a", Limit: 1}})[0]; !errors.Is(r.Err, job.ErrUnavailable) {
		t.Errorf("release without time: %+v", r)
	}
	// Ranks beyond what is kept exactly are the first or the last.
	acquire(t, s, good)
	acquire(t, s, waiting("n", 1, "last", 1<<62))
	acquire(t, s, waiting("n", 1, "first", -1<<62))
	expectWoken(t, release(t, s, "n", 1, "1@a"), "first")
}

// testUnitsTellWhenTheyLapse: those who may get a unit next hear when one comes free though
// nobody gives it back; others would come for nothing.
func testUnitsTellWhenTheyLapse(t *testing.T, w limitWorld) {
	s, clock := w.virtual(t)
	start := clock.Load()
	for i, h := range []string{"x", "y"} {
		acquire(t, s, job.UnitRequest{Name: "n", Limit: 2, Holder: h, TTL: time.Duration(10+i) * time.Second})
	}
	var asks []job.UnitRequest
	for i, record := range []job.RecordID{"a", "b", "c"} {
		asks = append(asks, waiting("n", 2, record, int64(i)))
	}
	asks = append(asks, job.UnitRequest{Name: "n", Limit: 2, Holder: "1@nobody", TTL: time.Second})
	free := func(want ...int64) {
		t.Helper()
		var got []int64
		for _, g := range s.AcquireUnits(t.Context(), asks) {
			if g.Err != nil || g.Granted {
				t.Fatalf("%+v", g)
			}
			got = append(got, int64(g.FreeMS))
		}
		if !slices.Equal(got, want) {
			t.Errorf("units lapse at %v, want %v", got, want)
		}
	}
	free(start+10_000, start+10_000, 0, 0)
	clock.pass(5 * time.Second)
	if _, err := s.RenewUnits(t.Context(), []job.UnitRenewal{{Name: "n", Holder: "x", TTL: 10 * time.Second}}); err != nil {
		t.Fatal(err)
	}
	free(start+11_000, start+11_000, 0, 0)
	clock.pass(6 * time.Second)
	if g := acquire(t, s, asks[0]); !g.Granted {
		t.Errorf("the unit has not lapsed: %+v", g)
	}
	asks = asks[1:]
	free(start+15_000, start+15_000, 0)
}
