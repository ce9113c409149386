package acceptance

import (
	"fmt"
	"maps"
	"time"

	"github.com/fermata-io/fermata/internal/redis/shardlock"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// takeOverWatch waits until shards have changed hands by their locks: each
// time that a lock is obtained it has another value.
type takeOverWatch struct {
	b      *bed
	before map[int]string // values of the locks
	from   time.Time
}

// watchTakeOver is called just before a node is lost.
func (b *bed) watchTakeOver(id string) *takeOverWatch {
	b.t.Helper()
	now, err := b.readLocks()
	if err != nil {
		b.t.Fatal(err)
	}
	// What nodes list of each other may be old: the locks themselves name their holders.
	maps.DeleteFunc(now, func(_ int, value string) bool {
		holder, _, _ := shardlock.ParseHolder(value)
		return holder != id
	})
	if len(now) == 0 {
		b.t.Fatalf("%s holds no lock", id)
	}
	return &takeOverWatch{b, now, time.Now()}
}

// awaitTakeOver waits until all of the node's shards are held anew, and notes how long that
// took: within is documented.
func (w *takeOverWatch) awaitTakeOver(within time.Duration) {
	w.b.t.Helper()
	redistest.Eventually(w.b.t, within+patience, "the shards are taken over", func() error {
		now, err := w.b.readLocks()
		if err != nil {
			return err
		}
		left := 0
		for shard, before := range w.before {
			if now[shard] == before || now[shard] == "" {
				left++
			}
		}
		if left > 0 {
			return fmt.Errorf("%d of %d are not: %v", left, len(w.before), now)
		}
		return nil
	})
	took := time.Since(w.from)
	if most := within + w.b.pulse.Since(w.from) + busyAllowance(); took > most {
		w.b.t.Errorf("%s: the shards were taken over after %v, %v is documented", w.b.current.ID, took, within)
	}
	w.b.current.TakeOvers = append(w.b.current.TakeOvers, took)
}
