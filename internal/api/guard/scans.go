package guard

import (
	"context"
	"strings"
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Scans are calls that search many records or lanes for those that match. Each is bounded, but callers who
// repeat them side by side could keep Redis busy. So scans take turns: an identity has one at a time on a node,
// and a node has few of all identities. A call waits for its turn, and is refused if that takes too long.
const (
	// maxScans is how many scans a node runs at once, of all callers.
	maxScans = 4
	// maxScanWait bounds the wait for a turn.
	maxScanWait = 5 * time.Second
)

// isScan reports whether a call of a method takes turns.
func isScan(method string, q any) bool {
	switch workBounds[method] {
	case runsOrPage:
		r, ok := q.(interface{ GetParent() string })
		return ok && strings.HasSuffix(r.GetParent(), "/jobs/-")
	case scannedPage, adminPage, timedPart, wholeCluster, sharedCounts, worstJobs:
		return true
	case forecastWork:
		return method == fermatav1.ClusterService_ForecastLoad_FullMethodName // which asks peers once for each turn
	}
	return false
}

// beginScan waits for the turn of a scan. Without an error, end must be called when the scan has ended.
func (c *Caller) beginScan(ctx context.Context) (end func(), err error) {
	wait, cancel := context.WithTimeout(ctx, maxScanWait)
	defer cancel()
	for i, turns := range []chan struct{}{c.quota.scan, c.gate.scans} {
		select {
		case turns <- struct{}{}:
			continue
		case <-wait.Done():
		}
		if i > 0 {
			<-c.quota.scan
		}
		return nil, c.refuseOverLimit(ctx, "scans", time.Second)
	}
	return func() { <-c.gate.scans; <-c.quota.scan }, nil
}
