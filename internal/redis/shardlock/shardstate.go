package shardlock

import (
	"time"

	"github.com/bsm/redislock"
)

// ValidLock is the lock of a shard while this node may rely on it.
type ValidLock struct {
	Shard int
	// Value is the whole string stored in the lock's key, for the scripts that
	// lease.
	Value string
	// ValidUntil is an instant of this process's monotonic clock. It grows with
	// each refresh.
	ValidUntil time.Time
}

// shardState is the loop's state of one shard. Only the loop touches it.
type shardState struct {
	shard int
	owner string // whom the ring names, "" for nobody

	lock       *redislock.Lock // obtained and, as far as we know, still in Redis
	token      string          // of an obtain in flight or with unknown outcome
	dropReason string          // why the shard is being given up, "" if it is not

	busy    bool      // a call is in flight
	woken   bool      // retryNow was called while it was
	failing bool      // the last call ended in an error
	nextAt  time.Time // when the next call may start
	start   time.Time // of the last call that may have set the TTL of lock
	lostAt  time.Time // when we last lost the shard against our will, or zero

	substituteUntil time.Time // how long this node may hold the shard in place of its owner

	replaceValue string        // the dead holder's value that the next attempt replaces
	holderEnded  bool          // its process is known to have ended
	maxPTTL      time.Duration // the PTTL under which it may be replaced
}

func (s *shardState) lockValue() string { return s.lock.Token() + s.lock.Metadata() }

// isQuiet is true if no lock of this process is or may be in Redis.
func (s *shardState) isQuiet() bool { return s.lock == nil && s.token == "" && !s.busy }

// nextCall returns which call comes next and when it may start.
func (s *shardState) nextCall(wanted bool) (callKind, time.Time) {
	switch {
	case s.busy:
		return noCall, time.Time{}
	case s.lock != nil && s.dropReason != "":
		return releaseCall, s.nextAt
	case s.lock != nil:
		return refreshCall, s.nextAt
	case s.token != "" && (!wanted || s.dropReason != ""):
		return discardCall, s.nextAt
	case wanted && s.replaceValue != "":
		return seizeCall, s.nextAt
	case wanted:
		return obtainCall, s.nextAt
	default:
		return noCall, time.Time{}
	}
}

// retryNow makes the next attempt at a lock that is not held an immediate one. A call in flight may have been
// too early, so another one follows it.
func (s *shardState) retryNow(now time.Time) {
	if s.lock != nil {
		return
	}
	s.woken = s.busy
	s.nextAt = now
	s.lostAt = time.Time{}
}
