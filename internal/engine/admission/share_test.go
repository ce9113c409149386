package admission

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Many jobs with overlapping sets of locks: no lock has two holders, each run gets its turn, and none waits for
// a poll for long.
func TestManyRunsShareLocks(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			run(t, func(b *bed) { share(b, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func share(b *bed, chance *rand.Rand) {
	const jobs, keys, work = 40, 4, 20 * time.Millisecond
	var records []job.RecordID
	for i := range jobs {
		d := recurring(fmt.Sprint("j", i))
		for _, k := range chance.Perm(keys)[:1+chance.IntN(3)] {
			d.Locks = append(d.Locks, job.Lock{Key: fmt.Sprint("k", k), Limit: 1})
		}
		b.put(d)
		records = append(records, d.Record())
	}
	pause := func(most int) time.Duration { return time.Duration(chance.IntN(most)) * 100 * time.Microsecond }
	b.store.set(func() { b.store.delay = func(job.Change) time.Duration { return pause(30) } })

	began := time.Now()
	held := map[string]string{}
	ends := map[job.RecordID]time.Time{}
	seen, done := 0, map[job.RecordID]bool{}
	for len(done) < jobs && time.Since(began) < time.Minute {
		for _, r := range records {
			if s := b.store.state(r); !done[r] && s.Region == job.RegionDue && dueIn(s) <= 0 {
				b.a.Reserve("ns", "q", 1).Deliver(b.lease(r))
			}
		}
		after(time.Millisecond)
		b.slots.mu.Lock()
		fresh := b.slots.delivered[seen:]
		seen = len(b.slots.delivered)
		b.slots.mu.Unlock()
		for _, l := range fresh {
			for _, lock := range l.Known.Definition.Locks {
				if other := held[lock.Key]; other != "" {
					b.t.Errorf("%s is held by %s and %s", lock.Key, other, l.Record)
				}
				held[lock.Key] = string(l.Record)
			}
			ends[l.Record] = time.Now().Add(work)
		}
		for r, at := range ends {
			if time.Now().Before(at) {
				continue
			}
			delete(ends, r)
			done[r] = true
			d := b.definition(r)
			for _, lock := range d.Locks {
				delete(held, lock.Key)
			}
			s := b.store.state(r)
			settle := success
			settle.Token = s.Token
			b.store.Submit(job.Change{Record: r, Input: settle}, func(job.ChangeResult) {
				b.a.Ended(job.Ending{Record: r, Token: s.Token, Definition: &d, Settle: settle, Over: true})
			})
		}
	}
	took := time.Since(began)
	after(time.Second) // for what the ledger still has
	if len(done) < jobs {
		b.t.Errorf("%d of %d jobs ran", len(done), jobs)
	}
	// One after the other they would take jobs * work; what comes on top is waiting
	// for nothing.
	if took > 4*time.Second {
		b.t.Errorf("took %v", took)
	}
	b.t.Log(took)
}
