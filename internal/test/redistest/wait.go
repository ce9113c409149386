package redistest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Patience is how long a test waits for what takes seconds, and may take minutes while the machine compiles or stands
// still. A test that states how fast something is has a limit of its own.
const Patience = 3 * time.Minute

const (
	// shortestPoll and longestPoll bound the time between two polls: a part of what has passed already, so that a
	// short wait ends at once and a long one leaves the processor to those that it waits for.
	shortestPoll = 5 * time.Millisecond
	longestPoll  = 50 * time.Millisecond
	pollPart     = 20

	startDeadline    = 60 * time.Second  // one server, on a loaded machine
	topologyDeadline = 120 * time.Second // discovery, replication, failover
	checkDeadline    = 20 * time.Second  // one command of the harness
)

// Condition is what [Eventually] polls. It holds when it returns true, or no error. A
// context given to it ends a few seconds after the call.
type Condition interface {
	func() bool | func() error | func(context.Context) error
}

// errNotYet is the error of a condition that returned false.
var errNotYet = errors.New("the condition does not hold")

// Eventually polls a condition until it holds, and fails the test with its last error
// if that takes longer than limit. It is the only such helper of the repository.
func Eventually[C Condition](t testing.TB, limit time.Duration, what string, cond C) {
	t.Helper()
	if err := pollUntil(limit, asCheck(cond)); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// asCheck returns a condition in its most general form.
func asCheck[C Condition](cond C) func(ctx context.Context) error {
	switch cond := any(cond).(type) {
	case func() bool:
		return func(context.Context) error {
			if !cond() {
				return errNotYet
			}
			return nil
		}
	case func() error:
		return func(context.Context) error { return cond() }
	case func(context.Context) error:
		return cond
	}
	panic("unreachable: Condition lists the forms")
}

// pollUntil calls cond until it returns nil or the limit has passed. Each call has a
// few seconds, so that a server which hangs does not use up the whole wait.
func pollUntil(limit time.Duration, cond func(ctx context.Context) error) error {
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for <-timer.C; ; <-timer.C {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := cond(ctx)
		cancel()
		if err == nil {
			return nil
		}
		passed := time.Since(began)
		if passed > limit {
			return fmt.Errorf("not within %v: %w", limit, err)
		}
		timer.Reset(min(max(passed/pollPart, shortestPoll), longestPoll))
	}
}
