package backoff

import (
	"math"
	"time"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Circuit is a circuit breaker: the backoff that all jobs with the same target share. Its instants
// are Unix milliseconds of one clock, 0 to 2^52. The zero value is closed: it holds no run back.
//
// A failure opens the circuit for a wait that grows with each failure. When the wait is over, the
// circuit is half open: exactly one run is the probe. Its success closes the circuit, its failure
// opens it for longer. If the probe has no result by ProbeUntilMS, another run becomes the probe.
//
// Many nodes decide on a circuit, and each knows only what is stored. So each function here is a
// step from one stored circuit to the next, written by compare-and-set. Invariants, in any order
// of steps:
//
//  1. There is at most one probe at a time: from Admit until ProbeUntilMS, or until its
//     result, all other runs are held back.
//  2. An open circuit closes only by the success of its probe, or when a person resets it.
//  3. OpenUntilMS never decreases while the circuit is open, except by EndWait.
//  4. All failures of runs that began before the circuit opened count as one failure.
type Circuit struct {
	// Failures is the number of failures in a row; each made the wait longer. 0: closed.
	Failures int64 `json:"n"`
	// SinceMS is when the first of them came.
	SinceMS unixtime.Milli `json:"s"`
	// OpenUntilMS: nothing passes before.
	OpenUntilMS unixtime.Milli `json:"u"`
	// Probe is the holder that probes the target. Its result is awaited until ProbeUntilMS.
	Probe        string         `json:"p,omitempty"`
	ProbeUntilMS unixtime.Milli `json:"q,omitempty"`
	// FailedJob is the job whose failure set the wait, Error the text of that failure; at most 128 and 256 bytes.
	FailedJob string `json:"b,omitempty"`
	Error     string `json:"e,omitempty"`
}

// CircuitVerdict is the answer to a run that wants to start.
type CircuitVerdict struct {
	OK bool
	// Probe: the run starts before all others, to probe the target.
	Probe bool
	// UntilMS is when to ask again, if not OK.
	UntilMS unixtime.Milli
}

const (
	// MaxRetryAfter bounds the wait that a failure may ask for.
	MaxRetryAfter = 24 * time.Hour

	// maxInstant keeps instants exact in every encoding.
	maxInstant = 1 << 52
)

// DefaultCircuit returns the curve of a circuit's waits: 1 s, doubling up to 5
// minutes, less up to 10 %.
func DefaultCircuit() Retry {
	return Retry{
		Strategy: Exponential, Base: time.Second, Multiplier: 2, MaxDelay: 5 * time.Minute, Jitter: DefaultJitter(),
	}
}

// Open reports whether the circuit holds runs back. That includes a half-open circuit.
func (c Circuit) Open() bool { return c.Failures > 0 }

// Admit answers a run that wants to start. holder names the run's lease, is not
// empty, and is never used again for another run. probeTTL, above zero, is how
// long a probe is waited for before another one is sent. Asking again as the same
// holder gives the same answer.
func (c Circuit) Admit(nowMS unixtime.Milli, holder string, probeTTL time.Duration) (next Circuit, v CircuitVerdict) {
	switch {
	case !c.Open():
		return c, CircuitVerdict{OK: true}
	case c.isProbedBy(holder) && nowMS < c.ProbeUntilMS:
		return c, CircuitVerdict{OK: true, Probe: true}
	case nowMS < max(c.OpenUntilMS, c.ProbeUntilMS):
		return c, CircuitVerdict{UntilMS: max(c.OpenUntilMS, c.ProbeUntilMS)}
	}
	c.Probe, c.ProbeUntilMS = holder, addDelay(nowMS, probeTTL)
	return c, CircuitVerdict{OK: true, Probe: true}
}

// RenewProbe extends the wait for a probe that is alive, unless another one has replaced it.
func (c Circuit) RenewProbe(holder string, nowMS unixtime.Milli, probeTTL time.Duration) Circuit {
	if c.isProbedBy(holder) {
		c.ProbeUntilMS = max(c.ProbeUntilMS, addDelay(nowMS, probeTTL))
	}
	return c
}

// Succeeded takes the success of a run. Only that of the probe closes an open
// circuit: others began before it opened.
func (c Circuit) Succeeded(_ unixtime.Milli, holder string) Circuit {
	if c.isProbedBy(holder) {
		return Circuit{}
	}
	return c
}

// Failed applies the failure of a run of the job by. The wait is that of the policy after as many
// failures or, if retryAfter is above zero, retryAfter, at most [MaxRetryAfter]. It never
// shortens a wait in force.
//
// While the circuit is open, the failure of a run that is not the probe is that of a run which
// began before it opened: it counts only if it requests a wait that ends later.
func (c Circuit) Failed(nowMS unixtime.Milli, holder, by, reason string, retryAfter time.Duration, policy Retry,
	seed uint64) Circuit {
	asked := addDelay(nowMS, min(retryAfter, MaxRetryAfter))
	if c.Open() && !c.isProbedBy(holder) {
		if retryAfter <= 0 || asked <= c.OpenUntilMS {
			return c
		}
		c.OpenUntilMS = asked
		return c.withFailure(by, reason)
	}
	if !c.Open() {
		c = Circuit{SinceMS: addDelay(nowMS, 0)}
	}
	c.Failures = min(c.Failures+1, maxInstant)
	c.Probe, c.ProbeUntilMS = "", 0
	until := asked
	if retryAfter <= 0 {
		until = addDelay(nowMS, policy.Delay(int(min(c.Failures, math.MaxInt32)), seed))
	}
	c.OpenUntilMS = max(c.OpenUntilMS, until)
	return c.withFailure(by, reason)
}

// ReleaseProbe takes the end of a run without a verdict (returned, cancelled, lost): if
// it was the probe, the next run that asks is.
func (c Circuit) ReleaseProbe(holder string) Circuit {
	if c.isProbedBy(holder) {
		c.Probe, c.ProbeUntilMS = "", 0
	}
	return c
}

// EndWait has the next run that asks probe the target. A probe that is awaited stays the only one.
func (c Circuit) EndWait(nowMS unixtime.Milli) Circuit {
	if c.Open() && (c.Probe == "" || nowMS >= c.ProbeUntilMS) {
		c.OpenUntilMS = min(c.OpenUntilMS, addDelay(nowMS, 0))
	}
	return c
}

func (c Circuit) isProbedBy(holder string) bool { return holder != "" && c.Probe == holder }

func (c Circuit) withFailure(by, reason string) Circuit {
	c.FailedJob, c.Error = clipText(by, maxCircuitBy), clipText(reason, maxCircuitError)
	return c
}

// addDelay returns an instant, saturating, rounded up to the millisecond.
func addDelay(nowMS unixtime.Milli, d time.Duration) unixtime.Milli {
	d = max(d, 0)
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return min(min(max(nowMS, 0), maxInstant)+unixtime.Milli(ms), maxInstant)
}
