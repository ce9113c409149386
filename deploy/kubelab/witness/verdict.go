package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/test/historycheck"
)

// longest that a handler of the load runs, on a machine that is slow.
const longest = 10 * time.Second

// session is the default of --session-ttl.
const session = 8 * time.Second

// judge ends the history and lets package historycheck speak. It fails on any finding, and
// if the history is too thin to have shown one.
func (w *witness) judge(ctx context.Context, _ url.Values) (string, error) {
	if w.adding == nil || w.act != nil {
		return "", errors.New("there is no history, or something is under way")
	}
	w.adding()
	<-w.added
	// Until then, what is due need not have begun.
	over := time.Now().Add(newcomerIn)
	for _, f := range w.faults {
		if end := time.Unix(0, f.ToNS).Add(f.Hold); end.After(over) {
			over = end
		}
	}
	if err := w.until(ctx, time.Until(over)+patience, func() error {
		if left := time.Until(over.Add(calmLag + slack)); left > 0 {
			return fmt.Errorf("%v to go", left)
		}
		return nil
	}); err != nil {
		return "", err
	}
	stored := map[string]bool{}
	for j, err := range w.load.c.Jobs(ctx, client.Filter{PageSize: 1000}) {
		if err != nil {
			return "", err
		}
		stored[client.JobID(j)] = true
	}
	return w.verdict(w.history(stored))
}

func (w *witness) history(stored map[string]bool) historycheck.History {
	w.load.mu.Lock()
	defer w.load.mu.Unlock()
	return historycheck.History{
		EndNS: time.Now().UnixNano(), Events: w.recorder.seen(),
		ExpectedSchedules: w.load.promises, Backoffs: w.load.backoffs,
		Faults: slices.Concat(w.faults, w.pulse.seen()), Stored: stored,
		Bounds: historycheck.Bounds{
			Lag: calmLag, Settle: time.Second, LeaseTTL: w.lease, SessionTTL: min(session, 2*w.lease/3), Longest: longest,
		},
	}
}

func (w *witness) verdict(h historycheck.History) (string, error) {
	r := historycheck.Check(h)
	lags := make([]time.Duration, 0, len(r.Lags))
	for _, l := range r.Lags {
		lags = append(lags, l.Lag)
	}
	slices.Sort(lags)
	quantile := func(q float64) time.Duration {
		return lags[min(len(lags)-1, int(q*float64(len(lags))))].Round(time.Millisecond / 10)
	}
	if len(lags) == 0 {
		return "", errors.New("nothing ran")
	}
	said := fmt.Sprintf("%d executions, %d nominal times and %d excused, %d repeats, %d waits of failing jobs; "+
		"lag p50 %v, p99 %v, longest %v",
		r.Executions, r.Targets, r.Excused, r.Repeats, r.Waits,
		quantile(0.5), quantile(0.99), lags[len(lags)-1].Round(10*time.Millisecond))
	if r.Targets < len(h.ExpectedSchedules) || r.Waits < len(h.Backoffs) {
		return said, errors.New("the history is too thin to show anything")
	}
	if len(r.Findings) > 0 {
		var all strings.Builder
		for _, f := range r.Findings[:min(len(r.Findings), 30)] {
			fmt.Fprintln(&all, f)
		}
		return said, fmt.Errorf("%s%d findings", &all, len(r.Findings))
	}
	return said + "; nothing lost, missed, overlapping or early", nil
}
