package guard

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/lib/callturn"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func newScanGate(t *testing.T) *Gate {
	t.Helper()
	g, err := New(Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func scanCaller(g *Gate, subject string) *Caller {
	return &Caller{
		gate: g, method: fermatav1.JobService_ListJobs_FullMethodName, Identity: authz.Identity{Subject: subject},
		quota: g.quotas.quotaFor(subject, authz.Limits{}), namespace: subject,
	}
}

func mustScan(t *testing.T, c *Caller) (end func()) {
	t.Helper()
	_, end, err := c.beginTurn(t.Context(), scanTurn)
	if err != nil {
		t.Fatal(err)
	}
	return end
}

func TestAnIdentityScansOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newScanGate(t)
		end := mustScan(t, scanCaller(g, "a"))
		mustScan(t, scanCaller(g, "b"))() // another identity does not wait
		began := time.Now()
		time.AfterFunc(time.Second, end)
		mustScan(t, scanCaller(g, "a"))()
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("the second scan began after %v, want 1s", waited)
		}
	})
}

func TestScansOfANodeAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newScanGate(t)
		for i := range turnBounds[scanTurn].ofNode {
			defer mustScan(t, scanCaller(g, fmt.Sprint(i)))()
		}
		late := scanCaller(g, "late")
		for range 2 { // the refused call has left no trace
			began := time.Now()
			if _, _, err := late.beginTurn(t.Context(), scanTurn); status.Code(err) != codes.ResourceExhausted || time.Since(began) != maxTurnWait {
				t.Errorf("%v after %v, want RESOURCE_EXHAUSTED after %v", err, time.Since(began), maxTurnWait)
			} else if !strings.Contains(err.Error(), "this node is at its limit of scans") {
				t.Errorf("the refusal blames the identity: %v", err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, _, err := late.beginTurn(ctx, scanTurn); err == nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v, want an error at the deadline of the call", err, time.Since(began))
		}
	})
}

// TestChangesFitTheMemory: with large payloads or little memory, a node runs fewer changes at once.
func TestChangesFitTheMemory(t *testing.T) {
	for _, c := range []struct {
		memory     int64
		maxPayload int
		want       int
	}{
		{math.MaxInt64, 0, 128}, {math.MaxInt64, 1, 128}, {math.MaxInt64, 1 << 20, 128},
		{math.MaxInt64, 10 << 20, 12}, {4 << 30, 10 << 20, 12}, {1 << 30, 10 << 20, 6}, {256 << 20, 10 << 20, 4},
		{128 << 20, 256 << 10, 32}, {512 << 20, 256 << 10, 128}, {1 << 20, 0, 4},
	} {
		if got := changesOfNode(c.memory, c.maxPayload); got != c.want {
			t.Errorf("%d bytes with payloads of %d: %d changes, want %d", c.memory, c.maxPayload, got, c.want)
		}
	}
	g, err := New(Options{MaxPayload: 10 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	most := changesOfNode(processMemory(), 10<<20)
	if got := cap(g.quotas.quotaFor("a", authz.Limits{}).turns[changeTurn]); got != most/2 {
		t.Errorf("an identity may have %d changes of %d", got, most)
	}
	for i := range most {
		_, end, err := scanCaller(g, fmt.Sprint(i)).beginTurn(t.Context(), changeTurn)
		if err != nil {
			t.Fatal(err)
		}
		defer end()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := scanCaller(g, "late").beginTurn(ctx, changeTurn); err == nil {
		t.Errorf("more than %d changes run at once", most)
	}
}

// TestTurnsAreReturnedDuringWaits: a call that waits for a turn of its namespace leaves its turn on the node to another
// identity, and keeps that of its own.
func TestTurnsAreReturnedDuringWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newScanGate(t)
		for i := range turnBounds[batchTurn].ofNode {
			identity := fmt.Sprint(i)
			ctx, end, err := scanCaller(g, identity).beginTurn(t.Context(), batchTurn)
			if err != nil || callturn.Caller(ctx) != identity {
				t.Fatalf("%v, the call is of %q", err, callturn.Caller(ctx))
			}
			go func() {
				_ = callturn.Wait(ctx, func() error { time.Sleep(time.Second); return nil })
				end()
			}()
		}
		synctest.Wait()
		began, own := time.Now(), g.quotas.quotaFor("0", authz.Limits{}).turns[batchTurn]
		_, end, err := scanCaller(g, "other").beginTurn(t.Context(), batchTurn)
		if err != nil || time.Since(began) != 0 || len(own) != 1 {
			t.Fatalf("%v after %v, with %d turns of a waiting identity", err, time.Since(began), len(own))
		}
		end()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if held, waiting := g.turns[batchTurn].InUse(); held+waiting+len(own) > 0 {
			t.Errorf("%d turns and %d waiting calls are left, %d turns of an identity", held, waiting, len(own))
		}
	})
}

// TestNamespacesShareTurns: however many identities of a namespace make calls, calls of another namespace do not wait.
// Several namespaces that take all turns let it wait for one of them.
func TestNamespacesShareTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const length = time.Second
		g := newScanGate(t)
		scan := func(subject, namespace string) (waited time.Duration) {
			c := scanCaller(g, subject)
			c.namespace = namespace
			began := time.Now()
			_, end, err := c.beginTurn(t.Context(), scanTurn)
			if err != nil {
				return -1
			}
			waited = time.Since(began)
			time.Sleep(length)
			end()
			return waited
		}
		for i := range 20 {
			go scan(fmt.Sprint("greedy", i), "greedy")
		}
		synctest.Wait()
		for range 3 {
			if waited := scan("other", "other"); waited != 0 {
				t.Errorf("a call of another namespace waited %v", waited)
			}
		}
		for i := range 20 {
			go scan(fmt.Sprint("too", i), "too")
		}
		synctest.Wait()
		for range 3 {
			if waited := scan("other", "other"); waited < 0 || waited > length {
				t.Errorf("beside two namespaces, a call waited %v", waited)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if held, waiting := g.turns[scanTurn].InUse(); held+waiting > 0 {
			t.Errorf("%d turns and %d waiting calls are left", held, waiting)
		}
	})
}

// TestCallsOfSeveralNamespacesShareTurns: calls that are about all namespaces take the part of one.
func TestCallsOfSeveralNamespacesShareTurns(t *testing.T) {
	for _, c := range []struct {
		method string
		q      any
		want   string
	}{
		{fermatav1.JobService_ListJobs_FullMethodName, &fermatav1.ListJobsRequest{Parent: "namespaces/a"}, "a"},
		{fermatav1.JobService_ListJobs_FullMethodName, &fermatav1.ListJobsRequest{Parent: "namespaces/-"}, ""},
		{fermatav1.JobService_GetJob_FullMethodName, &fermatav1.GetJobRequest{Name: "namespaces/a/jobs/b"}, "a"},
		{fermatav1.JobService_GetJob_FullMethodName, &fermatav1.GetJobRequest{Name: "b"}, ""},
		{fermatav1.JobService_TopJobs_FullMethodName, &fermatav1.TopJobsRequest{}, ""},
		{fermatav1.ClusterService_ListNamespaces_FullMethodName, &fermatav1.ListNamespacesRequest{}, ""},
		{fermatav1.ClusterService_ListNodes_FullMethodName, &fermatav1.ListNodesRequest{}, ""},
	} {
		if got := sharedNamespace(c.method, c.q); got != c.want {
			t.Errorf("%s %v takes the part of %q, want %q", c.method, c.q, got, c.want)
		}
	}
}

func TestTurnsOfNamespaces(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 1, 4: 3, 8: 6, 64: 48, 1024: 768} {
		if got := ofNamespace(n); got != want {
			t.Errorf("of %d turns a namespace may have %d, want %d", n, got, want)
		}
	}
}

// TestReadsOfAnIdentityLeaveTurnsToOthers: an identity that reads jobs as fast as it can has a part of the turns.
func TestReadsOfAnIdentityLeaveTurnsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newScanGate(t)
		begin := func(subject string) error {
			_, _, err := scanCaller(g, subject).beginTurn(t.Context(), readTurn)
			return err
		}
		for range turnBounds[readTurn].ofIdentity {
			if err := begin("greedy"); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := begin("other"); err != nil || time.Since(began) != 0 {
			t.Errorf("%v after %v, want a turn at once", err, time.Since(began))
		}
		if err := begin("greedy"); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%v, want RESOURCE_EXHAUSTED", err)
		}
	})
}

func TestClassesOfTurns(t *testing.T) {
	for method, want := range map[string]turnClass{
		fermatav1.JobService_ListJobs_FullMethodName:             scanTurn,
		fermatav1.JobService_ListUpcomingJobs_FullMethodName:     scanTurn,
		fermatav1.ClusterService_ListNamespaces_FullMethodName:   scanTurn,
		fermatav1.JobService_TopJobs_FullMethodName:              scanTurn,
		fermatav1.JobService_PauseJobs_FullMethodName:            scanTurn,
		fermatav1.JobService_BulkDeleteJobs_FullMethodName:       scanTurn,
		fermatav1.BackupService_ExportJobs_FullMethodName:        scanTurn,
		fermatav1.ClusterService_ListQueues_FullMethodName:       scanTurn,
		fermatav1.ClusterService_ListAuditRecords_FullMethodName: scanTurn,
		fermatav1.JobService_RenameJob_FullMethodName:            scanTurn,
		fermatav1.JobService_ApplyJobs_FullMethodName:            scanTurn,
		fermatav1.BackupService_RestoreJobs_FullMethodName:       scanTurn,
		fermatav1.ClusterService_ForecastLoad_FullMethodName:     forecastTurn,
		fermatav1.JobService_PreviewSchedule_FullMethodName:      scheduleTurn,
		fermatav1.JobService_PlanJobs_FullMethodName:             scheduleTurn,
		fermatav1.JobService_BackfillJob_FullMethodName:          scheduleTurn,
		fermatav1.JobService_GetJob_FullMethodName:               readTurn,
		fermatav1.JobService_UpdateJob_FullMethodName:            changeTurn,
		fermatav1.JobService_RunJob_FullMethodName:               changeTurn,
		fermatav1.JobService_RestoreJobRevision_FullMethodName:   changeTurn,
		fermatav1.JobService_ListJobRevisions_FullMethodName:     readTurn,
		fermatav1.JobService_CreateJob_FullMethodName:            createTurn,
		fermatav1.JobService_BatchCreateJobs_FullMethodName:      createTurn,
		fermatav1.JobService_PauseQueue_FullMethodName:           changeTurn,
		fermatav1.JobService_GetQueueSettings_FullMethodName:     readTurn,
		fermatav1.ClusterService_CheckShard_FullMethodName:       scanTurn,
		fermatav1.WorkerService_Work_FullMethodName:              noTurn,
	} {
		if got := turnClassOf(method, nil); got != want {
			t.Errorf("%s: class %v, want %v", method, got, want)
		}
	}
	for parent, want := range map[string]turnClass{
		"namespaces/a/jobs/-": scanTurn, "namespaces/-/jobs/-": scanTurn, "namespaces/a/jobs/b": readTurn,
	} {
		q := &fermatav1.ListRunsRequest{Parent: parent}
		if got := turnClassOf(fermatav1.JobService_ListRuns_FullMethodName, q); got != want {
			t.Errorf("runs of %s: class %v, want %v", parent, got, want)
		}
	}
	for jobs, want := range map[int]turnClass{fewJobs: createTurn, fewJobs + 1: batchTurn} {
		q := &fermatav1.BatchCreateJobsRequest{Requests: make([]*fermatav1.CreateJobRequest, jobs)}
		if got := turnClassOf(fermatav1.JobService_BatchCreateJobs_FullMethodName, q); got != want {
			t.Errorf("a batch of %d jobs: class %v, want %v", jobs, got, want)
		}
	}
}

// TestCallsThatTakeNoTurn: they read what the node has in memory, or are streams, which have bounds of their own.
func TestCallsThatTakeNoTurn(t *testing.T) {
	for method, bound := range workBounds {
		if turnClassOf(method, nil) == noTurn && bound != ownState && bound != longStream && method != fermatav1.PeerService_ForecastShards_FullMethodName {
			t.Errorf("%s takes no turn, and works on %s", method, bound)
		}
	}
}
