package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

// TestSessionsOfAnIdentityAreBounded: one identity may take half of the memory of sessions, by its sessions and their
// queues, and what closes makes room.
func TestSessionsOfAnIdentityAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.d.mu.sessionShares = newSessionShares(0)
		connect := func(identity string, n int) (*Session, error) {
			h := job.Hello{Namespace: "ns", Identity: identity, WorkerID: fmt.Sprint("w", n), Slots: 1, Epoch: 1}
			for q := range 64 {
				h.Queues = append(h.Queues, fmt.Sprint("q", q))
			}
			s, err := b.d.Connect(h, &fakeStream{})
			if err != nil {
				return nil, err
			}
			return s.(*Session), nil
		}
		var sessions []*Session
		for {
			s, err := connect("greedy", len(sessions))
			if err != nil {
				if !errors.Is(err, job.ErrTooManySessions) {
					t.Fatal(err)
				}
				break
			}
			sessions = append(sessions, s)
		}
		if n, want := len(sessions), minSessionUnits/2/(sessionBaseUnits+64); n < want-1 || n > want+1 {
			t.Errorf("%d sessions of one identity, want about %d", n, want)
		}
		if _, err := connect("other", 0); err != nil {
			t.Errorf("another identity: %v", err)
		}
		for _, s := range sessions[:2] {
			s.Close("test", nil)
			s.Close("again", nil)
		}
		if _, err := connect("greedy", 1000); err != nil {
			t.Errorf("after two have closed: %v", err)
		}
	})
}

// TestSessionsTakeMemoryOfTheProcess: the places follow the memory that the process is to keep to.
func TestSessionsTakeMemoryOfTheProcess(t *testing.T) {
	for memory, want := range map[int64]int{0: minSessionUnits, 1 << 30: 1 << 28 / sessionUnitBytes, 1 << 62: maxSessionUnits} {
		table := newSessionShares(memory)
		n := 0
		for table.AcquireMany(fairshare.Holder{Identity: fmt.Sprint("i", n)}, 1) {
			n++
		}
		if n != want {
			t.Errorf("memory %d: %d units, want %d", memory, n, want)
		}
	}
}

// TestSessionThatReturnsItsLeasesRests: a worker that returns what it is given gets fewer and fewer leases, until it
// starts some. Returning all of its leases once costs nothing.
func TestSessionThatReturnsItsLeasesRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		const slots = 100
		s, _ := b.connect("w", slots, 1)
		next := 0
		deliver := func() []string {
			ids := make([]string, b.free())
			for i := range ids {
				ids[i] = fmt.Sprint("j", next)
				next++
			}
			return b.deliver(ids...)
		}
		began, returned := time.Now(), 0
		for time.Since(began) < time.Minute {
			if b.free() == 0 {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			ids := deliver()
			for part := range slices.Chunk(ids, 10) { // as they came
				s.HandleReturned(part)
			}
			returned += len(ids)
			synctest.Wait()
		}
		if most := 60*returnsPerSecond + s.hello.MaxLive() + freeReturns + 2*slots; returned > most || returned < 60*returnsPerSecond/2 {
			t.Errorf("%d leases were returned in a minute, want up to %d", returned, most)
		}
		time.Sleep(time.Minute)
		for range 20 { // one lease in two is started
			ids := deliver()
			s.HandleStarted(ids[:len(ids)/2])
			s.HandleReturned(ids[len(ids)/2:])
			synctest.Wait()
			s.HandleResults(okAll(ids[:len(ids)/2]))
			synctest.Wait()
			if b.free() != slots {
				t.Fatalf("%d slots are free for a worker that starts half of its leases, want %d", b.free(), slots)
			}
		}
	})
}

func okAll(ids []string) (results []job.Result) {
	for _, id := range ids {
		results = append(results, ok(id)...)
	}
	return results
}

// TestSessionsOfAnIdentityShareTheirReturns: many sessions that return what they are given get hardly more leases than
// a few.
func TestSessionsOfAnIdentityShareTheirReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		const workers, slots = 100, 50
		sessions := make([]*Session, workers)
		for i := range sessions {
			sessions[i], _ = b.connect(fmt.Sprint("w", i), slots, 1)
		}
		next, returned := 0, 0
		for began := time.Now(); time.Since(began) < 5*time.Minute; time.Sleep(100 * time.Millisecond) {
			ids := make([]string, b.free())
			for i := range ids {
				ids[i] = fmt.Sprint("j", next)
				next++
			}
			if len(ids) == 0 {
				continue
			}
			ids = b.deliver(ids...)
			for _, s := range sessions {
				s.HandleReturned(ids)
			}
			returned += len(ids)
			synctest.Wait()
		}
		free := workers * (freeReturns + 4*slots)
		if most := free + 300*returnsPerSecond*2*restsAtFullRate; returned > most {
			t.Errorf("%d leases were returned in five minutes, want up to %d", returned, most)
		} else {
			t.Logf("XX %d of %d", returned, most)
		}
		b.d.mu.Lock()
		owes := b.d.mu.returns[""].excess
		b.d.mu.Unlock()
		late, _ := b.connect("late", slots, 1)
		b.d.mu.Lock()
		if owes <= freeReturnsOfIdentity || late.returns.excess < float64(late.freeReturns()) {
			t.Errorf("a new session of an identity that owes %v has free returns", owes)
		}
		b.d.mu.Unlock()
		for _, s := range append(sessions, late) {
			s.Close("test", nil)
		}
		time.Sleep(time.Hour)
		last, _ := b.connect("last", slots, 1)
		b.d.mu.Lock()
		defer b.d.mu.Unlock()
		if i := b.d.mu.returns[""]; i.sessions != 1 || i.rests != 0 || last.returns.excess != 0 {
			t.Errorf("after an hour: %+v", i)
		}
	})
}

// TestReturnsAreOwedByTheNextSession: a worker that reconnects owes what it owed, and the leases that its previous
// session had not started are returned leases.
func TestReturnsAreOwedByTheNextSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		const slots = 100
		next, returned := 0, 0
		s, _ := b.connect("w", slots, 1)
		for epoch := uint32(2); epoch < 200; epoch++ {
			ids := make([]string, b.free())
			for i := range ids {
				ids[i] = fmt.Sprint("j", next)
				next++
			}
			if len(ids) > 0 {
				b.deliver(ids...)
			}
			returned += len(ids)
			s, _ = b.connect("w", slots, epoch)
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		if most := s.freeReturns() + 2*slots + 20*returnsPerSecond + 500; returned > most {
			t.Errorf("%d leases in 20 s by a worker that reconnects, want up to %d", returned, most)
		}
	})
}
