package shardlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
)

// aloneAfter is how long a process writes heartbeats after it has seen the last of the others. A member that
// cannot be seen may still read them, for as long as [Manager.ProcessEnded] counts.
const aloneAfter = 2 * goneRetention

// missedBeats is the number of missed heartbeats after which a process counts as silent.
const missedBeats = 3

// heartbeat is the last heartbeat of the process that obtained a lock.
type heartbeat struct {
	known  bool
	age    time.Duration // since it was written
	period time.Duration // the pause between two, as the process writes it
	ttl    time.Duration // how long one is kept, as the process writes it
	node   string        // whose process it is; empty from the build before the previous one
	// address is where clients reach the node; empty from the previous build, and from one without an address.
	address string
}

// isFresh is true while the process can be trusted to keep its locks: its heartbeat is not older than the time
// after which a silent holder has to give up its locks.
func (l heartbeat) isFresh() bool { return l.known && l.age < max(missedBeats*l.period, l.ttl*2/3) }

// untilSilent returns how long it is until the process counts as silent without a new heartbeat, 0 if it does
// now. A process without heartbeats never does: ok is false.
func (l heartbeat) untilSilent() (d time.Duration, ok bool) {
	return max(0, missedBeats*l.period-l.age), l.known
}

func (l heartbeat) isSilent() bool {
	d, ok := l.untilSilent()
	return ok && d == 0
}

// heartbeatLoop writes heartbeats while there are other members that could read them, until ctx ends. They stop
// with the process, and are independent of single locks: they prove that Redis receives the process's commands.
func (m *Manager) heartbeatLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.peersJoined:
			m.beatWhileNotAlone(ctx)
		}
	}
}

// beatWhileNotAlone writes heartbeats until there have been no other members for a while, and then deletes the
// last one: a heartbeat without a successor looks like a death. With each heartbeat it reads those of the
// others, which decide who may own shards.
func (m *Manager) beatWhileNotAlone(ctx context.Context) {
	ticker := time.NewTicker(m.o.beatEvery())
	defer ticker.Stop()
	failing := false
	for alone := (time.Time{}); ; {
		say, last := m.exchangeHeartbeats, false
		switch {
		case m.hasPeers.Load():
			alone = time.Time{}
		case alone.IsZero():
			alone = time.Now()
		case time.Since(alone) >= aloneAfter:
			say, last = m.calls.deleteHeartbeat, true
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
			m.o.Logger.Info("heartbeats succeed again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// exchangeHeartbeats writes one heartbeat and reads those of others. If reading fails the owners stay as they
// are: a Redis that does not answer this node proves nothing about the others.
func (m *Manager) exchangeHeartbeats(ctx context.Context) error {
	var v sharding.View
	if latest := m.gossipView.Load(); latest != nil {
		v = *latest
	}
	read := m.eligibility.processesToRead(v)
	heartbeats, written, err := m.calls.writeHeartbeat(ctx, read)
	now := time.Now()
	if written {
		m.noteAnswer(now)
	}
	if err != nil {
		return err
	}
	defer m.publishAddresses() // of the heartbeats just read
	m.eligibility.applyReadings(v, read, heartbeats, now)
	if !m.eligibility.isSettled(now) {
		return nil
	}
	seen := m.eligibility.seenProcesses()
	m.seen.Store(&seen)
	owners := m.eligibility.eligibleOwners()
	if before := m.owners.Load(); before == nil || !maps.Equal(*before, owners) {
		m.owners.Store(&owners)
		m.wakeLoop()
	}
	return nil
}

// writeHeartbeat writes one heartbeat: it extends the last one, which works even if Redis has no memory for new
// keys. A heartbeat carries its own period and life, so that nodes with other settings judge it correctly, and
// the node's name, so that no other node can claim it. The same round trip reads the heartbeats of other
// processes. The heartbeat may be written although an error is returned, of those of others.
func (c *redisCalls) writeHeartbeat(ctx context.Context, others []string) (read map[string]heartbeat, written bool,
	err error) {
	key := c.o.HeartbeatKey(c.process)
	read = map[string]heartbeat{}
	err = c.withTimeout(ctx, func(ctx context.Context) error {
		var prolonged *redis.BoolCmd
		texts, left := make([]*redis.StringCmd, len(others)), make([]*redis.DurationCmd, len(others))
		_, _ = c.o.Client.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
			prolonged = p.PExpire(ctx, key, c.o.TTL)
			for i, process := range others {
				texts[i], left[i] = p.Get(ctx, c.o.HeartbeatKey(process)), p.PTTL(ctx, c.o.HeartbeatKey(process))
			}
			return nil
		})
		// In a Redis Cluster some heartbeats may be unreadable, which must not keep this process from writing
		// its own.
		there, err := prolonged.Result()
		if err == nil && !there {
			err = c.o.Client.Set(ctx, key, c.o.heartbeatText(), c.o.TTL).Err()
		}
		written = err == nil
		for i, process := range others {
			err = errors.Join(err, firstReadError(texts[i].Err(), left[i].Err()))
			read[process] = parseHeartbeat(texts[i].Val(), left[i].Val())
		}
		return err
	})
	return read, written, err
}

// firstReadError returns the first error other than the absence of a key.
func firstReadError(errs ...error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	return nil
}

// deleteHeartbeat ends the heartbeats.
func (c *redisCalls) deleteHeartbeat(ctx context.Context) error {
	return c.withTimeout(ctx, func(ctx context.Context) error {
		return c.o.Client.Del(ctx,
			c.o.HeartbeatKey(c.process)).Err()
	})
}

// readHeartbeat reads the last heartbeat of a process. One that is missing, or cannot be read, proves nothing.
func (c *redisCalls) readHeartbeat(ctx context.Context, process string) (l heartbeat) {
	if process == "" || process == c.process {
		return l
	}
	_ = c.withTimeout(ctx, func(ctx context.Context) error {
		var text *redis.StringCmd
		var left *redis.DurationCmd
		_, err := c.o.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
			text, left = p.Get(ctx, c.o.HeartbeatKey(process)), p.PTTL(ctx, c.o.HeartbeatKey(process))
			return nil
		})
		if err == nil {
			l = parseHeartbeat(text.Val(), left.Val())
		}
		return err
	})
	return l
}

// parseHeartbeat reads a heartbeat that has this much of its time left.
func parseHeartbeat(text string, left time.Duration) heartbeat {
	var every, ttl int64
	if n, err := fmt.Sscanf(text, "%d %d", &every, &ttl); n != 2 || err != nil || every <= 0 || ttl <= 0 || left < 0 {
		return heartbeat{}
	}
	l := heartbeat{known: true, period: time.Duration(every) * time.Millisecond,
		ttl: time.Duration(ttl) * time.Millisecond}
	l.age = l.ttl - left
	if parts := strings.SplitN(text, " ", 3); len(parts) == 3 {
		l.node = parts[2]
		if _, address, _ := strings.Cut(parts[1], addressMark); job.IsAddress(address) {
			l.address = address
		}
	}
	return l
}

// addressMark precedes the address in a heartbeat. The previous build takes everything after the second space
// for the node's name, and reads a number up to a tab.
const addressMark = "\t"

// heartbeatText is the text of this process's heartbeats.
func (o Options) heartbeatText() string {
	text := fmt.Sprintf("%d %d", o.beatEvery().Milliseconds(), o.TTL.Milliseconds())
	if o.ClientAddr != "" {
		text += addressMark + o.ClientAddr
	}
	return text + " " + o.Node
}

// clientAddress is where clients reach a process.
type clientAddress struct{ process, address string }

// publishAddresses makes the addresses of heartbeats available to ClientAddress.
func (m *Manager) publishAddresses() {
	now := m.eligibility.clientAddresses()
	if before := m.addresses.Load(); before == nil && len(now) > 0 || before != nil && !maps.Equal(*before, now) {
		m.addresses.Store(&now)
		m.o.OnAddress()
	}
}

// ClientAddress returns where clients reach a process of a member, according to its last heartbeat in this
// keyspace; empty: unknown.
func (m *Manager) ClientAddress(node, process string) string {
	all := m.addresses.Load()
	if all == nil || (*all)[node].process != process {
		return ""
	}
	return (*all)[node].address
}
