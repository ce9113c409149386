package shardlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
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
}

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

// beatInCompany gives signs until there has been nobody else for a while, and then
// takes the last one back: one that is not followed by others looks like death.
func (m *Manager) beatInCompany(ctx context.Context) {
	ticker := time.NewTicker(m.o.beatEvery())
	defer ticker.Stop()
	failing := false
	for alone := (time.Time{}); ; {
		say, last := m.calls.beat, false
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
			m.o.Logger.Warn("no sign of life could be given", "error", err)
		default:
			m.o.Logger.Info("signs of life are given again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// beat gives one sign of life: it prolongs the last one, which a Redis without room
// for anything new does too. It carries its own rhythm and life, so that nodes with
// other settings judge it rightly.
func (c *redisCalls) beat(ctx context.Context) error {
	key := c.o.LifeKey(c.process)
	return c.bounded(ctx, func(ctx context.Context) error {
		if there, err := c.o.Client.PExpire(ctx, key, c.o.TTL).Result(); there || err != nil {
			return err
		}
		text := fmt.Sprintf("%d %d", c.o.beatEvery().Milliseconds(), c.o.TTL.Milliseconds())
		return c.o.Client.Set(ctx, key, text, c.o.TTL).Err()
	})
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
	return life{known: true, every: time.Duration(every) * time.Millisecond, age: time.Duration(ttl)*time.Millisecond - left}
}
