package lease

import (
	"math"
	"time"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Losses that end a run.
const (
	// PoisonLosses is how many lost leases in a row quarantine a run, counting
	// only attempts that a worker had acknowledged.
	PoisonLosses = 3
	// UndeliveredBound is how many lost leases in a row quarantine a run, whether or not a
	// worker had acknowledged any of its attempts.
	UndeliveredBound = 6
	// RestartSpread is the time over which runs are spread that one more lost worker would quarantine. A payload that
	// crashes its worker also ends the other runs of that worker, which are then leased again together with it.
	// Spread out, it runs beside few of them the last time.
	RestartSpread = 10 * time.Second
)

// MaxToken is the largest integer up to which doubles, and so Lua's numbers, are
// exact. Tokens stay below it until the year 2255.
const MaxToken = 1<<53 - 1

// tokensPerMS is the room for tokens in a millisecond before they run ahead of
// the clock.
const tokensPerMS = 1000

// Mint makes the next fencing token of a shard:
//
//	max(previous + 1, floor + 1, nowMS * 1000)
//
// previous is the last token that the shard has stored. floor is the highest one
// that the caller has seen of it; it matters after a failover that lost some. So
// does the part made of time, when no caller remembers.
//
// A batch of n leases mints the tokens t, t+1 ... t+n-1 and stores the last.
func Mint(previous, floor uint64, nowMS unixtime.Milli) uint64 {
	now := uint64(min(max(nowMS, 0), math.MaxInt64/tokensPerMS)) * tokensPerMS
	return max(nextToken(previous), nextToken(floor), now)
}

// MintedMS returns about when a token was minted, in Unix milliseconds: never before that, and
// after it only while more than 1,000 leases a millisecond, or a clock that was set back,
// have tokens run ahead of the clock.
func MintedMS(token uint64) unixtime.Milli { return unixtime.Milli(min(token, MaxToken) / tokensPerMS) }

func nextToken(token uint64) uint64 {
	if token == math.MaxUint64 {
		return token
	}
	return token + 1
}
