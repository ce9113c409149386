package shardlock

import (
	"time"

	"github.com/bsm/redislock"
)

// Grip is the valid possession of a shard.
type Grip struct {
	Shard int
	// Value is the whole string stored in the lock's key, for the scripts that
	// lease.
	Value string
	// ValidUntil is an instant of this process's monotonic clock. It grows with
	// each refresh.
	ValidUntil time.Time
}

// slot is what the loop knows about one shard. Only the loop touches it.
type slot struct {
	shard int
	owner string // whom the ring names, "" for nobody

	lock  *redislock.Lock // obtained and, as far as we know, still in Redis
	token string          // of an obtain in flight or with unknown outcome
	drop  string          // why the shard is being given up, "" if it is not

	busy    bool      // a call is in flight
	woken   bool      // a wake came while it was
	failing bool      // the last call ended in an error
	next    time.Time // when the next call may start
	start   time.Time // of the last call that may have set the TTL of lock
	lostAt  time.Time // when we last lost the shard against our will, or zero

	expect string        // the dead holder's value that the next attempt replaces
	proven bool          // its process is known to have ended
	below  time.Duration // the PTTL under which it may be replaced
}

func (s *slot) value() string { return s.lock.Token() + s.lock.Metadata() }

// quiet is true if nothing of ours is or may be in Redis.
func (s *slot) quiet() bool { return s.lock == nil && s.token == "" && !s.busy }

// due says which call comes next and when it may start.
func (s *slot) due(wanted bool) (kind, time.Time) {
	switch {
	case s.busy:
		return none, time.Time{}
	case s.lock != nil && s.drop != "":
		return release, s.next
	case s.lock != nil:
		return refresh, s.next
	case s.token != "" && (!wanted || s.drop != ""):
		return discard, s.next
	case wanted && s.expect != "":
		return seize, s.next
	case wanted:
		return obtain, s.next
	default:
		return none, time.Time{}
	}
}

// wake makes the next attempt at a lock that we do not have an immediate one.
// A call in flight may have been too early, so it is followed by another.
func (s *slot) wake(now time.Time) {
	if s.lock != nil {
		return
	}
	s.woken = s.busy
	s.next = now
	s.lostAt = time.Time{}
}
