package limits

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// testUnitsTogether: asks of one limit that come in one call are answered as if they had
// come one after the other, whatever has happened before.
func testUnitsTogether(t *testing.T, w limitWorld) {
	s, clock := w.virtual(t)
	const limit, records = 4, 12
	for seed := range uint64(20) {
		dice := rand.New(rand.NewPCG(seed, 7))
		together, single := fmt.Sprint("together", seed), fmt.Sprint("single", seed)
		for step := range 12 {
			chosen := dice.Perm(records)[:1+dice.IntN(records)]
			if dice.IntN(3) == 0 {
				chosen = append(chosen, chosen[0]) // a repeat in the same call
			}
			what := fmt.Sprintf("seed %d, step %d: %v", seed, step, chosen)
			if dice.IntN(2) == 0 {
				sameGrants(t, s, what, together, single, limit, chosen)
			} else {
				sameReleases(t, s, what, together, single, limit, chosen)
			}
			rooms, err := s.FreeUnitsOf(t.Context(), []job.UnitRequest{{Name: together, Limit: limit}, {Name: single, Limit: limit}})
			if err != nil || rooms[0] != rooms[1] {
				t.Fatalf("%s: rooms %v (%v)", what, rooms, err)
			}
			clock.pass(time.Duration(dice.IntN(4000)) * time.Millisecond)
		}
	}
}

func askOf(name string, limit, record int) job.UnitRequest {
	return waiting(name, limit, job.RecordID(fmt.Sprintf("w%02d", record)), int64(record%5))
}

func sameGrants(t *testing.T, s limitBed, what, together, single string, limit int, records []int) {
	t.Helper()
	var asks []job.UnitRequest
	for _, r := range records {
		asks = append(asks, askOf(together, limit, r))
	}
	for i, got := range s.AcquireUnits(t.Context(), asks) {
		want := acquire(t, s, askOf(single, limit, records[i]))
		if !want.Granted { // somebody is named, who may have come later in the same call
			want.By, want.SinceMS, want.FreeMS = got.By, got.SinceMS, got.FreeMS
			if got.By == "" {
				t.Fatalf("%s: ask %d: nobody stands in the way", what, i)
			}
		}
		if got != want {
			t.Fatalf("%s: ask %d: %+v, want %+v", what, i, got, want)
		}
	}
}

// sameReleases has records give back what they have and leave the line.
func sameReleases(t *testing.T, s limitBed, what, together, single string, limit int, records []int) {
	t.Helper()
	of := func(name string, record int) job.UnitRelease {
		ask := askOf(name, limit, record)
		return job.UnitRelease{Name: name, Limit: limit, Holder: ask.Holder, Waiter: ask.Waiter}
	}
	var releases []job.UnitRelease
	for _, r := range records {
		releases = append(releases, of(together, r))
	}
	var got, want []job.RecordID
	for _, r := range s.ReleaseUnits(t.Context(), releases) {
		if r.Err != nil {
			t.Fatalf("%s: %v", what, r.Err)
		}
		got = append(got, r.Woken...)
	}
	for _, r := range records {
		answer := s.ReleaseUnits(t.Context(), []job.UnitRelease{of(single, r)})[0]
		if answer.Err != nil {
			t.Fatalf("%s: %v", what, answer.Err)
		}
		want = append(want, answer.Woken...)
	}
	// One by one, some are woken that leave the line a moment later.
	leaves := func(record job.RecordID) bool {
		return slices.ContainsFunc(records, func(r int) bool { return askOf("", 1, r).Waiter == record })
	}
	for _, list := range []*[]job.RecordID{&got, &want} {
		*list = slices.DeleteFunc(*list, leaves)
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s: woken %v, want %v", what, got, want)
	}
}
