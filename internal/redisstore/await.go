package redisstore

import (
	"context"
	"slices"
	"time"
)

// Waits of [Await] between two looks; each is twice as long as the one before.
const (
	awaitFirst = 100 * time.Millisecond
	awaitMost  = 3 * time.Second
)

// Await returns nil when the servers answer and are what the options demand, or when what
// is wrong with them does not pass by itself: [Open] says then what that is. Until then it
// looks again and again, and tells waiting each time what it waits for: a server
// that cannot be reached or is loading, a primary that is still to be elected, replicas that
// have not come yet. When ctx ends it returns the last of these reasons.
func Await(ctx context.Context, o Options, waiting func(reason error)) error {
	pause := awaitFirst
	for {
		reason := passing(ctx, o)
		if reason == nil {
			return nil
		}
		waiting(reason)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return reason
		}
		pause = min(2*pause, awaitMost)
	}
}

// passing is what keeps the servers from being opened now, and may not later.
func passing(ctx context.Context, o Options) error {
	report, err := Preflight(ctx, o)
	if err != nil {
		if classify(err).retry {
			return err
		}
		return nil
	}
	if !report.passes(o) {
		return nil
	}
	return report.verdict(o)
}

// passes tells whether all that is Fatal may become otherwise without anybody's doing: an
// election makes a primary of a replica, and replicas come when they have synchronised.
func (r Report) passes(o Options) bool {
	lacks := func(code string) bool {
		return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == code })
	}
	replicas := lacks("replicas") && !lacks("min_replicas") && !lacks("no_persistence")
	for _, f := range r.Findings {
		waits := f.Code == "role" || f.Code == "durability" && replicas
		if f.Severity == Fatal && !waits && !o.forgives(f) {
			return false
		}
	}
	return true
}
