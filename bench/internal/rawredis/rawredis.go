// Package rawredis is what Redis itself can do: the least that a scheduler has to ask
// of it, with nothing checked and nothing kept besides.
//
// A drain leases jobs in batches, and completes or reschedules them. Two sorted sets have
// the due and the leased jobs, one hash the payloads; ids come in random order and due times
// are random. A lease, a completion and a rescheduling are one script call each, with variadic
// commands, from four connections.
package rawredis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/bench/internal/record"
)

const (
	connections = 4
	dueKey      = "{raw}:due"
	leasedKey   = "{raw}:leased"
	payloadKey  = "{raw}:payload"
)

// leaseScript moves what is due into the leased set: KEYS due, leased, payload; ARGV
// now, count, deadline. It returns ids, then payloads.
var leaseScript = redis.NewScript(`
local ids = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[2])
if #ids == 0 then return {} end
redis.call('ZREM', KEYS[1], unpack(ids))
local moved = {}
for i, id in ipairs(ids) do
  moved[2 * i - 1] = ARGV[3]
  moved[2 * i] = id
end
redis.call('ZADD', KEYS[2], unpack(moved))
return {ids, redis.call('HMGET', KEYS[3], unpack(ids))}
`)

// rescheduleScript moves jobs back: KEYS due, leased; ARGV score, id, score, id ...
var rescheduleScript = redis.NewScript(`
local ids = {}
for i = 2, #ARGV, 2 do ids[i / 2] = ARGV[i] end
redis.call('ZREM', KEYS[2], unpack(ids))
redis.call('ZADD', KEYS[1], unpack(ARGV))
return #ids
`)

// completeScript removes jobs: KEYS leased, payload; ARGV ids.
var completeScript = redis.NewScript(`
redis.call('ZREM', KEYS[1], unpack(ARGV))
redis.call('HDEL', KEYS[2], unpack(ARGV))
return #ARGV
`)

// End is what becomes of a leased job.
type End uint8

// Ends of jobs: one-time ones are removed, recurring ones get their next due time.
const (
	Complete End = iota
	Reschedule
)

// Limit drives a redis-server.
type Limit struct{ client *redis.Client }

// New connects.
func New(addr string) *Limit {
	return &Limit{redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, PoolSize: connections, ReadTimeout: 30 * time.Second,
	})}
}

// Close disconnects.
func (l *Limit) Close() { _ = l.client.Close() }

// Add stores n jobs, due at random instants of a span that ends now (or, with ahead,
// begins in an hour), so many a call.
func (l *Limit) Add(ctx context.Context, n, perCall, size int, ahead bool) error {
	begin := time.Now().Add(-time.Minute)
	if ahead {
		begin = time.Now().Add(time.Hour)
	}
	order := rand.Perm(n)
	return l.each((n+perCall-1)/perCall, func(k int) error {
		pipe := l.client.Pipeline()
		var due []redis.Z
		var payloads []any
		for _, i := range order[k*perCall : min(n, (k+1)*perCall)] {
			id := record.ID(0, i)
			due = append(due, redis.Z{Score: float64(begin.Add(rand.N(time.Minute)).UnixMilli()), Member: id})
			payloads = append(payloads, id, record.Payload(0, i, time.Time{}, size))
		}
		pipe.ZAdd(ctx, dueKey, due...)
		pipe.HSet(ctx, payloadKey, payloads...)
		_, err := pipe.Exec(ctx)
		return err
	})
}

// Drain leases every due job once and ends it. It returns the number of jobs.
func (l *Limit) Drain(ctx context.Context, batch int, end End) (int, error) {
	now := time.Now().UnixMilli()
	var done atomic.Int64
	err := l.each(connections, func(int) error {
		for {
			n, err := l.batch(ctx, now, batch, end)
			done.Add(int64(n))
			if err != nil || n == 0 {
				return err
			}
		}
	})
	return int(done.Load()), err
}

func (l *Limit) batch(ctx context.Context, now int64, batch int, end End) (int, error) {
	answer, err := leaseScript.Run(ctx, l.client, []string{dueKey, leasedKey, payloadKey}, now, batch, now+30_000).Slice()
	if err != nil || len(answer) == 0 {
		return 0, err
	}
	ids, ok := answer[0].([]any)
	if !ok || len(answer) != 2 {
		return 0, fmt.Errorf("answer of %d parts", len(answer))
	}
	if end == Complete {
		return len(ids), completeScript.Run(ctx, l.client, []string{leasedKey, payloadKey}, ids...).Err()
	}
	back := make([]any, 0, 2*len(ids))
	for _, id := range ids {
		back = append(back, now+3_600_000+rand.Int64N(3_600_000), id)
	}
	return len(ids), rescheduleScript.Run(ctx, l.client, []string{dueKey, leasedKey}, back...).Err()
}

// each calls f for 0 to n-1 from as many goroutines as there are connections.
func (l *Limit) each(n int, f func(int) error) error {
	var next atomic.Int64
	errs := make([]error, connections)
	var all sync.WaitGroup
	for c := range connections {
		all.Go(func() {
			for {
				k := int(next.Add(1)) - 1
				if k >= n || errs[c] != nil {
					return
				}
				errs[c] = f(k)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
