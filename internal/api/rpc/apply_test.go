package rpc

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func TestDesiredJobsAreTranslated(t *testing.T) {
	b := serve(t)
	before := stored()
	after := before
	after.Timeout, after.Payload, after.PayloadKey = time.Minute, []byte("sealed"), "k1"
	record := func(d job.Definition) *job.Record { return &job.Record{Definition: &d} }
	b.jobs.wished = []job.ApplyResult{
		{Action: job.ApplyUpdate, Before: record(before), After: record(after), PauseChanges: true},
		{Before: record(before), Err: &job.PreconditionError{Key: key, Reason: job.ReasonOtherOwner, Text: "it belongs to them"}},
		{Action: job.ApplyDelete, Before: record(before)},
	}
	desired := []*fermatav1.DesiredJob{
		{JobId: "a", Etag: "e", Paused: new(true), Job: &fermatav1.Job{Name: "namespaces/elsewhere/jobs/x", Handler: "h", PayloadSealed: true}},
		{JobId: "b", Job: &fermatav1.Job{Timeout: &durationpb.Duration{Seconds: 1, Nanos: -1}}, Paused: new(false)},
		{JobId: "c", Delete: true, Etag: "f"},
	}
	jobs := fermatav1.NewJobServiceClient(b.conn)
	planned, err := jobs.PlanJobs(t.Context(), &fermatav1.PlanJobsRequest{Parent: "namespaces/default", DesiredJobs: desired, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	applied, err := jobs.ApplyJobs(t.Context(), &fermatav1.ApplyJobsRequest{Parent: "namespaces/default", DesiredJobs: desired, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	got := b.jobs.desired
	if !b.jobs.force || got[0].Definition.Key != (job.Key{Namespace: "default", ID: "a"}) || !got[0].AsRead || !got[0].Pause || got[0].Resume || got[0].Etag != "e" {
		t.Errorf("first desired job %+v", got[0])
	}
	if got[1].Err == nil || !got[1].Resume || got[1].Pause || got[1].AsRead {
		t.Errorf("second desired job %+v", got[1])
	}
	if !got[2].Delete || got[2].Etag != "f" || got[2].Definition.ID != "c" {
		t.Errorf("third desired job %+v", got[2])
	}
	for what, changes := range map[string][]*fermatav1.JobChange{"plan": planned.GetChanges(), "apply": applied.GetChanges()} {
		c := changes[0]
		if c.GetAction() != fermatav1.JobChange_ACTION_UPDATE || !slices.Equal(c.GetFields(), []string{"payload", "timeout", "paused"}) {
			t.Errorf("%s: %v of %v", what, c.GetAction(), c.GetFields())
		}
		if (c.GetBefore().GetEtag() == "") == (what == "plan") || len(c.GetAfter().GetPayload()) != 0 || c.GetAfter().GetTimeout().AsDuration() != time.Minute {
			t.Errorf("%s: %v to %v", what, c.GetBefore(), c.GetAfter())
		}
		if (c.GetAfter().GetStatus() == nil) != (what == "plan") {
			t.Errorf("%s: status %v", what, c.GetAfter().GetStatus())
		}
		reason := ""
		for _, detail := range changes[1].GetDetails() {
			if info := (&errdetails.ErrorInfo{}); detail.UnmarshalTo(info) == nil {
				reason = info.GetReason()
			}
		}
		if codes.Code(changes[1].GetCode()) != codes.FailedPrecondition || reason != job.ReasonOtherOwner {
			t.Errorf("%s: %v", what, changes[1])
		}
		if changes[2].GetAction() != fermatav1.JobChange_ACTION_DELETE || changes[2].GetAfter() != nil {
			t.Errorf("%s: %v", what, changes[2])
		}
	}
	b.jobs.wished = []job.ApplyResult{{Err: job.ErrTooLarge}}
	if _, err := jobs.PlanJobs(t.Context(), &fermatav1.PlanJobsRequest{Parent: "namespaces/default", DesiredJobs: desired[:1]}); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	if _, err := jobs.ApplyJobs(t.Context(), &fermatav1.ApplyJobsRequest{Parent: "namespaces/default", DesiredJobs: desired[:1]}); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	if _, err := jobs.PlanJobs(t.Context(), &fermatav1.PlanJobsRequest{Parent: "namespaces/default", DesiredJobs: make([]*fermatav1.DesiredJob, maxBatch+1)}); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	if _, err := jobs.ApplyJobs(t.Context(), &fermatav1.ApplyJobsRequest{Parent: "x"}); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

// sealedJobs have one job in queue mail whose payload is sealed.
type sealedJobs struct{ fakeJobs }

func (*sealedJobs) PlanJobs(_ context.Context, desired []job.DesiredJob, _ bool) []job.ApplyResult {
	record := inQueue("pin", "mail")
	record.Definition.PayloadKey = "k1"
	hidden := desired[0].HidesPayload(record.Definition)
	return []job.ApplyResult{{Action: job.ApplyUnchanged, Before: &record, After: &record, PayloadHidden: hidden}}
}

// TestWhoMayComparePayloads: only who may edit a job learns whether a payload is the one that it has sealed.
func TestWhoMayComparePayloads(t *testing.T) {
	other := allow(authz.Editor, "team-a", "other")
	other.Queues = []string{"web"}
	reader := allow(authz.Viewer, "team-a", "other", "viewer")
	b := serveGated(t, Options{Jobs: &sealedJobs{}, Authority: newAuthority(t, authz.Limits{}, other, reader,
		allow(authz.Operator, "team-a", "operator"), allow(authz.Editor, "team-a", "editor"))})
	c := fermatav1.NewJobServiceClient(b.dial(t))
	for name, hidden := range map[string]bool{"viewer": true, "operator": true, "other": true, "editor": false} {
		answer, err := c.PlanJobs(as(t.Context(), name), &fermatav1.PlanJobsRequest{Parent: nsA,
			DesiredJobs: []*fermatav1.DesiredJob{desiredJob("pin", "mail")}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := answer.GetChanges()[0].GetPayloadNotCompared(); got != hidden {
			t.Errorf("%s: payload_not_compared %v, want %v", name, got, hidden)
		}
	}
}
