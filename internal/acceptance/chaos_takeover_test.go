package acceptance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/redisstore"
)

// takeOverWatch waits until shards have changed hands, as their locks say: each
// time that a lock is obtained it has another value.
type takeOverWatch struct {
	b      *bed
	before map[int]string // values of the locks
	from   time.Time
}

// watchTakeOver is called just before a node is lost.
func (b *bed) watchTakeOver(id string) *takeOverWatch {
	b.t.Helper()
	held := b.shardsOf(id)
	now, err := b.locks()
	if err != nil {
		b.t.Fatal(err)
	}
	maps.DeleteFunc(now, func(shard int, _ string) bool { return !held[shard] })
	if len(now) == 0 {
		b.t.Fatalf("%s holds no lock", id)
	}
	return &takeOverWatch{b, now, time.Now()}
}

// over waits until all of the node's shards are held anew, and notes how long that
// took.
func (w *takeOverWatch) over() {
	w.b.t.Helper()
	lock, lease := chaosTTLs()
	eventually(w.b.t, eitherBound(lock, lease)+10*time.Second, "the shards are taken over", func() error {
		now, err := w.b.locks()
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
	w.b.current.TakeOvers = append(w.b.current.TakeOvers, time.Since(w.from))
}

// locks are the values of all shard locks that are held.
func (b *bed) locks() (map[int]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if b.looking == nil {
		client, err := redisstore.NewClient(redisstore.ClientOptions{URL: b.redisURL})
		if err != nil {
			return nil, err
		}
		b.t.Cleanup(func() { _ = client.Close() })
		store, err := redisstore.Open(ctx, redisstore.Options{Client: client, Shards: shards, AllowUnsafe: true})
		if err != nil {
			return nil, err
		}
		b.looking = &looking{client, store}
	}
	held := map[int]string{}
	for shard := range shards {
		value, err := b.looking.client.Get(ctx, b.looking.store.LockKey(shard)).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		held[shard] = value
	}
	return held, nil
}

// looking is how the test itself looks at Redis.
type looking struct {
	client redis.UniversalClient
	store  *redisstore.Store
}
