package shardlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/ring"
)

// lonelyAfter is how long a process gives signs of life after it has seen the last of
// the others. Who cannot be seen may still ask: for as long as [Manager.Gone] counts.
const lonelyAfter = 2 * goneFor

// beats is how many signs of life a process has to miss to count as silent.
const beats = 3

// life is what is known of the signs of life of the process that obtained a lock.
type life struct {
	known bool
	age   time.Duration // of the last one
	every time.Duration // the pause between two, as the process says
	ttl   time.Duration // how long one is kept, as the process says
	node  string        // whose process it is; empty from the build before the previous one
	// address is where clients reach the node; empty from the previous build, and from one that does
	// not say.
	address string
}

// fresh is true while the process can be trusted to keep its locks: it is heard of for as
// long as a holder may be silent that has to give its locks up.
func (l life) fresh() bool { return l.known && l.age < max(beats*l.every, l.ttl*2/3) }

// wait is how long until the process counts as silent if no more is heard of it,
// 0 if it does now. Of one that gives no signs it is never said.
func (l life) wait() (d time.Duration, ok bool) {
	return max(0, beats*l.every-l.age), l.known
}

func (l life) silent() bool {
	d, ok := l.wait()
	return ok && d == 0
}

// keepAlive gives signs of life while there are others who could ask for them, until
// ctx ends. They stop with the process, and say nothing of single locks: what they
// prove is that Redis hears it.
func (m *Manager) keepAlive(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.joined:
			m.beatInCompany(ctx)
		}
	}
}

// beatInCompany writes heartbeats until there has been nobody else for a while, and then
// takes the last one back: one that is not followed by others looks like death. With each
// one it reads those of the others, by which it knows who may own shards.
func (m *Manager) beatInCompany(ctx context.Context) {
	ticker := time.NewTicker(m.o.beatEvery())
	defer ticker.Stop()
	failing := false
	for alone := (time.Time{}); ; {
		say, last := m.beat, false
		switch {
		case m.company.Load():
			alone = time.Time{}
		case alone.IsZero():
			alone = time.Now()
		case time.Since(alone) >= lonelyAfter:
			say, last = m.calls.takeBack, true
		}
		err := say(ctx)
		if last && err == nil {
			return
		}
		switch {
		case ctx.Err() != nil || (err != nil) == failing:
		case err != nil:
			m.o.Logger.Warn("failed to write or read heartbeats", "error", err)
		default:
			m.o.Logger.Info("heartbeats are written and read again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// beat writes one heartbeat and reads those of others. What cannot be read leaves the
// owners as they are: that Redis does not answer this node says nothing about the others.
func (m *Manager) beat(ctx context.Context) error {
	var v ring.View
	if told := m.told.Load(); told != nil {
		v = *told
	}
	read := m.eligibility.next(v)
	heartbeats, err := m.calls.beat(ctx, read)
	if err != nil {
		return err
	}
	now := time.Now()
	defer m.publishAddresses() // of what was taken
	if m.eligibility.take(v, read, heartbeats, now); !m.eligibility.complete(now) {
		return nil
	}
	owners := m.eligibility.owners()
	if before := m.owners.Load(); before == nil || !maps.Equal(*before, owners) {
		m.owners.Store(&owners)
		m.signal()
	}
	return nil
}

// beat writes one heartbeat: it prolongs the last one, which a Redis without room
// for anything new does too. It carries its own rhythm and life, so that nodes with
// other settings judge it rightly, and the node's name, so that no other node can claim
// it. The same round trip reads the heartbeats of other processes.
func (c *redisCalls) beat(ctx context.Context, others []string) (map[string]life, error) {
	key, heard := c.o.LifeKey(c.process), map[string]life{}
	return heard, c.bounded(ctx, func(ctx context.Context) error {
		var prolonged *redis.BoolCmd
		texts, left := make([]*redis.StringCmd, len(others)), make([]*redis.DurationCmd, len(others))
		_, _ = c.o.Client.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
			prolonged = p.PExpire(ctx, key, c.o.TTL)
			for i, process := range others {
				texts[i], left[i] = p.Get(ctx, c.o.LifeKey(process)), p.PTTL(ctx, c.o.LifeKey(process))
			}
			return nil
		})
		// Of a Redis Cluster some heartbeats may not be readable, which must not keep this
		// process from giving its own.
		there, err := prolonged.Result()
		if err == nil && !there {
			err = c.o.Client.Set(ctx, key, c.o.heartbeat(), c.o.TTL).Err()
		}
		for i, process := range others {
			err = errors.Join(err, readFault(texts[i].Err(), left[i].Err()))
			heard[process] = parseLife(texts[i].Val(), left[i].Val())
		}
		return err
	})
}

// readFault is the first error that is more than the absence of a key.
func readFault(errs ...error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	return nil
}

// takeBack ends the signs of life.
func (c *redisCalls) takeBack(ctx context.Context) error {
	return c.bounded(ctx, func(ctx context.Context) error { return c.o.Client.Del(ctx, c.o.LifeKey(c.process)).Err() })
}

// heard reads the last sign of life of a process. One that is not there, or cannot be
// read, proves nothing.
func (c *redisCalls) heard(ctx context.Context, process string) (l life) {
	if process == "" || process == c.process {
		return l
	}
	_ = c.bounded(ctx, func(ctx context.Context) error {
		var text *redis.StringCmd
		var left *redis.DurationCmd
		_, err := c.o.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
			text, left = p.Get(ctx, c.o.LifeKey(process)), p.PTTL(ctx, c.o.LifeKey(process))
			return nil
		})
		if err == nil {
			l = parseLife(text.Val(), left.Val())
		}
		return err
	})
	return l
}

// parseLife reads a sign of life that has so much of its time left.
func parseLife(text string, left time.Duration) life {
	var every, ttl int64
	if n, err := fmt.Sscanf(text, "%d %d", &every, &ttl); n != 2 || err != nil || every <= 0 || ttl <= 0 || left < 0 {
		return life{}
	}
	l := life{known: true, every: time.Duration(every) * time.Millisecond, ttl: time.Duration(ttl) * time.Millisecond}
	l.age = l.ttl - left
	if parts := strings.SplitN(text, " ", 3); len(parts) == 3 {
		l.node = parts[2]
		if _, address, _ := strings.Cut(parts[1], addressMark); job.IsAddress(address) {
			l.address = address
		}
	}
	return l
}

// addressMark precedes the address of a heartbeat. The previous build takes all behind the second
// space for the name of the node, and reads a number up to a tab.
const addressMark = "\t"

// heartbeat is the text of this process's heartbeats.
func (o Options) heartbeat() string {
	text := fmt.Sprintf("%d %d", o.beatEvery().Milliseconds(), o.TTL.Milliseconds())
	if o.ClientAddr != "" {
		text += addressMark + o.ClientAddr
	}
	return text + " " + o.Node
}

// clientAddress is where clients reach a process.
type clientAddress struct{ process, address string }

// publishAddresses has ClientAddress know what heartbeats have said.
func (m *Manager) publishAddresses() {
	now := m.eligibility.addresses()
	if before := m.addresses.Load(); before == nil && len(now) > 0 || before != nil && !maps.Equal(*before, now) {
		m.addresses.Store(&now)
		m.o.OnAddress()
	}
}

// ClientAddress is where clients reach a process of a member, as its heartbeat in this keyspace has
// said last; empty: it has not.
func (m *Manager) ClientAddress(node, process string) string {
	all := m.addresses.Load()
	if all == nil || (*all)[node].process != process {
		return ""
	}
	return (*all)[node].address
}
