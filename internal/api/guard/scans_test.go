package guard

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/authz"
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
		quota: g.quotas.quotaFor(subject, authz.Limits{}),
	}
}

func mustScan(t *testing.T, c *Caller) (end func()) {
	t.Helper()
	end, err := c.beginScan(t.Context())
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
		for i := range maxScans {
			defer mustScan(t, scanCaller(g, fmt.Sprint(i)))()
		}
		late := scanCaller(g, "late")
		for range 2 { // the refused call has left no trace
			began := time.Now()
			if _, err := late.beginScan(t.Context()); status.Code(err) != codes.ResourceExhausted || time.Since(began) != maxScanWait {
				t.Errorf("%v after %v, want RESOURCE_EXHAUSTED after %v", err, time.Since(began), maxScanWait)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := late.beginScan(ctx); err == nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v, want an error at the deadline of the call", err, time.Since(began))
		}
	})
}

func TestListingsAreScans(t *testing.T) {
	for method, want := range map[string]bool{
		fermatav1.JobService_ListJobs_FullMethodName:             true,
		fermatav1.JobService_ListUpcomingJobs_FullMethodName:     true,
		fermatav1.ClusterService_ListNamespaces_FullMethodName:   true,
		fermatav1.JobService_TopJobs_FullMethodName:              true,
		fermatav1.JobService_PauseJobs_FullMethodName:            true,
		fermatav1.JobService_BulkDeleteJobs_FullMethodName:       true,
		fermatav1.BackupService_ExportJobs_FullMethodName:        true,
		fermatav1.ClusterService_ListQueues_FullMethodName:       true,
		fermatav1.ClusterService_ListAuditRecords_FullMethodName: true,
		fermatav1.JobService_GetJob_FullMethodName:               false,
		fermatav1.JobService_CreateJob_FullMethodName:            false,
		fermatav1.WorkerService_Work_FullMethodName:              false,
	} {
		if isScan(method, nil) != want {
			t.Errorf("%s: scan %v", method, !want)
		}
	}
	for parent, want := range map[string]bool{
		"namespaces/a/jobs/-": true, "namespaces/-/jobs/-": true, "namespaces/a/jobs/b": false,
	} {
		q := &fermatav1.ListRunsRequest{Parent: parent}
		if isScan(fermatav1.JobService_ListRuns_FullMethodName, q) != want {
			t.Errorf("runs of %s: scan %v", parent, !want)
		}
	}
}
