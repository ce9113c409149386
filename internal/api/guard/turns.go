package guard

import (
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/lib/callturn"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// turnClass is a kind of calls that take turns. Each call of the kind is bounded, but callers who make many side by
// side could keep Redis or the processors busy, or fill the memory. So an identity has few of them at a time on a
// node, and a node has few of all identities. A call waits for its turn, and is refused if that takes too long.
type turnClass int

const (
	noTurn turnClass = iota
	// scanTurn: the call searches or reads many records or lanes, or copies a whole job.
	scanTurn
	// scheduleTurn: the call computes times of schedules.
	scheduleTurn
	// readTurn: the call reads one job, whose payload or history may be large.
	readTurn
	// changeTurn: the call changes one job, and reads it before.
	changeTurn
	// createTurn: the call creates a few jobs.
	createTurn
	// batchTurn: the call creates many jobs.
	batchTurn
	turnClasses
)

// turnBounds are how many calls of each class run at once.
var turnBounds = [turnClasses]struct {
	name       string // in the refusal
	ofIdentity int
	ofNode     int
}{
	scanTurn:     {name: "scans", ofIdentity: 1, ofNode: 4},
	scheduleTurn: {name: "schedules", ofIdentity: 1, ofNode: max(1, runtime.GOMAXPROCS(0)/2)},
	readTurn:     {name: "reads", ofIdentity: 16, ofNode: 64},
	changeTurn:   {name: "changes", ofIdentity: 64, ofNode: 128},
	createTurn:   {name: "creations", ofIdentity: 256, ofNode: 1024},
	batchTurn:    {name: "batches", ofIdentity: max(2, runtime.GOMAXPROCS(0)), ofNode: max(4, 2*runtime.GOMAXPROCS(0))},
}

// fewJobs is how many jobs a call may create without the turn of a batch.
const fewJobs = 64

// maxTurnWait bounds the wait for a turn.
const maxTurnWait = 5 * time.Second

// turns has, for each class, a channel with an element for each call that has its turn.
type turns [turnClasses]chan struct{}

func newTurnsOfIdentity() (t turns) {
	for class := scanTurn; class < turnClasses; class++ {
		t[class] = make(chan struct{}, turnBounds[class].ofIdentity)
	}
	return t
}

func newTurnsOfNode() (t turns) {
	for class := scanTurn; class < turnClasses; class++ {
		t[class] = make(chan struct{}, turnBounds[class].ofNode)
	}
	return t
}

// turnClassOf returns the class of a call.
func turnClassOf(method string, q any) turnClass {
	switch workBounds[method] {
	case runsOrPage:
		r, ok := q.(interface{ GetParent() string })
		if ok && strings.HasSuffix(r.GetParent(), "/jobs/-") {
			return scanTurn
		}
		return readTurn
	case scannedPage, adminPage, timedPart, wholeCluster, sharedCounts, worstJobs, wholeJob, oneShard:
		return scanTurn
	case forecastWork:
		if method == fermatav1.ClusterService_ForecastLoad_FullMethodName { // which asks peers once for each turn
			return scanTurn
		}
	case searchedTimes, countedTimes:
		return scheduleTurn
	case scheduleWork: // creations take turns as soon as a schedule is expensive, see registry.scheduleTurns
		switch method {
		case fermatav1.JobService_PlanJobs_FullMethodName:
			return scheduleTurn
		case fermatav1.JobService_ApplyJobs_FullMethodName, fermatav1.BackupService_RestoreJobs_FullMethodName:
			return scanTurn // they read all the jobs that they name
		}
		if r, ok := q.(interface {
			GetRequests() []*fermatav1.CreateJobRequest
		}); ok && len(r.GetRequests()) > fewJobs {
			return batchTurn
		}
		return createTurn
	case oneJob, storedRevisions, wholeTable:
		if changesNothing(method) {
			return readTurn
		}
		return changeTurn
	}
	return noTurn
}

// beginTurn waits for the turn of a call. Without an error, end must be called when the call has ended. With the
// returned context, the call gives its turn on the node back while it waits for one of its namespace (see callturn). It
// keeps the turn of its identity.
func (c *Caller) beginTurn(ctx context.Context, class turnClass) (withTurn context.Context, end func(), err error) {
	ofIdentity, ofNode := c.quota.turns[class], c.gate.turns[class]
	wait, cancel := context.WithTimeout(ctx, maxTurnWait)
	defer cancel()
	if takeTurn(wait, ofIdentity) != nil {
		return nil, nil, c.refuseOverLimit(ctx, turnBounds[class].name, time.Second)
	}
	if takeTurn(wait, ofNode) != nil {
		<-ofIdentity
		return nil, nil, c.refuseOverNodeLimit(ctx, turnBounds[class].name, time.Second)
	}
	take := func(ctx context.Context) error { return takeTurn(ctx, ofNode) }
	turn := callturn.New(c.quota.subject, take, func() { <-ofNode })
	end = func() {
		turn.End()
		<-ofIdentity
	}
	return callturn.NewContext(ctx, turn), end, nil
}

// takeTurn waits for one of some turns until a context ends.
func takeTurn(ctx context.Context, turns chan<- struct{}) error {
	select {
	case turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
