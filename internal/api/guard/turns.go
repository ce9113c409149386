package guard

import (
	"cmp"
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/callturn"
	"github.com/fermata-io/fermata/internal/lib/fairturn"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// turnClass is a kind of calls that take turns. Each call of the kind is bounded, but callers who make many side by
// side could keep Redis or the processors busy, or fill the memory. So an identity has few of them at a time on a
// node, a node has few of all identities, and a namespace has not all of these. Namespaces and identities share them (see
// fairturn). A call waits for its turn, and is refused if that takes too long.
type turnClass int

const (
	noTurn turnClass = iota
	// scanTurn: the call searches or reads many records or lanes, or copies a whole job.
	scanTurn
	// forecastTurn: the call asks all nodes, and waits for what they read. It takes a turn of its own kind, so that
	// searches do not wait for it.
	forecastTurn
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

// turnBounds are how many calls of each class run at once, at most: see changesOfNode.
var turnBounds = [turnClasses]struct {
	name       string // in the refusal
	ofIdentity int
	ofNode     int
}{
	scanTurn:     {name: "scans", ofIdentity: 1, ofNode: 4},
	forecastTurn: {name: "forecasts", ofIdentity: 1, ofNode: 4},
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

// turnsOfIdentity has, for each class, a channel with an element for each call that has its turn.
type turnsOfIdentity [turnClasses]chan struct{}

func newTurnsOfIdentity(changes int) (t turnsOfIdentity) {
	for class := scanTurn; class < turnClasses; class++ {
		n := turnBounds[class].ofIdentity
		if class == changeTurn {
			n = min(n, max(1, changes/2))
		}
		t[class] = make(chan struct{}, n)
	}
	return t
}

// placesAside bounds, for each class, the calls of a node that have stepped aside. Changes have read the job that they
// change. Batches and creations have their request only, which the budget of requests bounds.
type placesAside [turnClasses]*callturn.Places

func newPlacesAside(changes int) (p placesAside) {
	p[changeTurn] = callturn.NewPlaces(changes)
	return p
}

// turnsOfNode has, for each class, the turns that namespaces share.
type turnsOfNode [turnClasses]*fairturn.Turns

func newTurnsOfNode(changes int) (t turnsOfNode) {
	for class := scanTurn; class < turnClasses; class++ {
		n := turnBounds[class].ofNode
		if class == changeTurn {
			n = changes
		}
		t[class] = fairturn.New(n, ofNamespace(n))
	}
	return t
}

const (
	// defaultMaxPayload is the default of [Options.MaxPayload].
	defaultMaxPayload = 256 << 10
	// maxChangeBytes bounds the definitions that changes with a turn have in memory, and again those of changes that have
	// stepped aside.
	maxChangeBytes = 256 << 20
	minChanges     = 4
)

// changesOfNode returns how many changes a process with so much memory runs at once, each with the definition of a job
// as it was and as it will be.
func changesOfNode(memory int64, maxPayload int) int {
	fit := min(maxChangeBytes, memory/8) / int64(2*cmp.Or(maxPayload, defaultMaxPayload))
	return max(minChanges, int(min(fit, int64(turnBounds[changeTurn].ofNode))))
}

// ofNamespace is how many turns of a node a namespace may have: all but a quarter, one at least.
func ofNamespace(ofNode int) int { return max(1, ofNode-(ofNode+3)/4) }

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
			return forecastTurn
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

// sharedNamespace returns the namespace whose part of turns a call takes. It is empty for calls that are about several
// namespaces, or about none: these have the limit of one namespace together.
func sharedNamespace(method string, q any) string {
	find := methodPermissions[method].namespaceOf
	if find == nil {
		return ""
	}
	namespace, err := find(q)
	if err != nil || namespace == authz.AllNamespaces || namespace == convert.AnyNamespace {
		return ""
	}
	return namespace
}

// beginTurn waits for the turn of a call. Without an error, end must be called when the call has ended. With the
// returned context, the call gives its turn on the node back while it waits for what it shares with other calls (see
// callturn). It keeps the turn of its identity.
func (c *Caller) beginTurn(ctx context.Context, class turnClass) (withTurn context.Context, end func(), err error) {
	ofIdentity, ofNode := c.quota.turns[class], c.gate.turns[class]
	wait, cancel := context.WithTimeout(ctx, maxTurnWait)
	defer cancel()
	select {
	case ofIdentity <- struct{}{}:
	case <-wait.Done():
		return nil, nil, c.refuseOverLimit(ctx, turnBounds[class].name, time.Second)
	}
	holder := fairturn.Holder{Namespace: c.namespace, Identity: c.quota.subject}
	if ofNode.Take(wait, holder) != nil {
		<-ofIdentity
		return nil, nil, c.refuseOverNodeLimit(ctx, turnBounds[class].name, time.Second)
	}
	began := time.Now()
	takeAgain := func(ctx context.Context) error {
		wait, cancel := context.WithTimeout(ctx, maxTurnWait)
		defer cancel()
		if ofNode.Take(wait, holder) != nil {
			return cmp.Or(context.Cause(ctx), error(&job.TurnError{Work: turnBounds[class].name}))
		}
		began = time.Now()
		return nil
	}
	release := func() { ofNode.Release(holder, time.Since(began)) }
	turn := callturn.New(c.quota.subject, takeAgain, release, c.gate.asides[class])
	end = func() {
		turn.End()
		<-ofIdentity
	}
	return callturn.NewContext(ctx, turn), end, nil
}
