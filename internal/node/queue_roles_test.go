package node_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestAnEditorOfOneQueueCannotTakeAJob of another queue, delete it or learn its etag, however
// often a call names it.
func TestAnEditorOfOneQueueCannotTakeAJob(t *testing.T) {
	x := newTenants(t, "  - {subjects: [\"token:scaler-a\"], role: editor, namespaces: [a], queues: [mail]}\n")
	c := fermatav1.NewJobServiceClient(x.conn)
	secret := intervalJob(time.Hour, "h")
	secret.Queue, secret.Payload = "web", []byte("secret")
	victim, err := c.CreateJob(x.as("editor-a"),
		&fermatav1.CreateJobRequest{Parent: "namespaces/a", JobId: "victim", Job: secret})
	if err != nil {
		t.Fatal(err)
	}
	taken := intervalJob(time.Hour, "h")
	taken.Queue, taken.PayloadSealed = "mail", true
	for _, etag := range []string{"", "x", victim.GetEtag()} {
		take := &fermatav1.DesiredJob{JobId: "victim", Etag: etag, Job: taken}
		remove := &fermatav1.DesiredJob{JobId: "victim", Etag: etag, Delete: true}
		for _, desired := range [][]*fermatav1.DesiredJob{{take}, {take, take}, {remove}, {remove, remove},
			{take, remove}, {remove, take}} {
			applied, err := c.ApplyJobs(x.as("scaler-a"),
				&fermatav1.ApplyJobsRequest{Parent: "namespaces/a", Force: true, DesiredJobs: desired})
			if err != nil {
				t.Fatal(err)
			}
			for i, change := range applied.GetChanges() {
				want := codes.PermissionDenied
				if i > 0 {
					want = codes.InvalidArgument
				}
				if codes.Code(change.GetCode()) != want || change.GetBefore() != nil || change.GetAfter() != nil {
					t.Errorf("etag %q, desired job %d of %d: %v", etag, i, len(desired), change)
				}
			}
			planned, err := c.PlanJobs(x.as("scaler-a"),
				&fermatav1.PlanJobsRequest{Parent: "namespaces/a", Force: true, DesiredJobs: desired})
			if err != nil {
				t.Fatal(err)
			}
			for i, change := range planned.GetChanges() {
				if change.GetCode() == 0 || change.GetBefore() != nil || change.GetAfter() != nil {
					t.Errorf("etag %q, desired job %d of %d is planned: %v", etag, i, len(desired), change)
				}
			}
		}
	}
	now, err := c.GetJob(x.as("editor-a"), &fermatav1.GetJobRequest{Name: "namespaces/a/jobs/victim"})
	if err != nil || now.GetQueue() != "web" || now.GetEtag() != victim.GetEtag() {
		t.Errorf("the job is %v, %v", now, err)
	}
}

// TestAnOperatorOfOneQueueReachesNoJobThatMoves: while an editor of all queues moves a job to and fro, what
// is done by an operator of one of them is done to the job in that queue, or refused.
func TestAnOperatorOfOneQueueReachesNoJobThatMoves(t *testing.T) {
	t.Parallel()
	x := newTenants(t, "  - {subjects: [\"token:scaler-a\"], role: operator, namespaces: [a], queues: [mail]}\n")
	c := fermatav1.NewJobServiceClient(x.conn)
	const name = "namespaces/a/jobs/mover"
	d := intervalJob(time.Hour, "h")
	d.Queue = "mail"
	if _, err := c.CreateJob(x.as("editor-a"),
		&fermatav1.CreateJobRequest{Parent: "namespaces/a", JobId: "mover", Job: d}); err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	moved := make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-end:
				moved <- nil
				return
			default:
			}
			_, err := c.UpdateJob(x.as("editor-a"), &fermatav1.UpdateJobRequest{
				Job:        &fermatav1.Job{Name: name, Queue: []string{"web", "mail"}[i%2]},
				UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"queue"}},
			})
			if err != nil && status.Code(err) != codes.Aborted {
				moved <- err
				return
			}
		}
	}()
	done, refused := 0, 0
	for i := 0; i < 300 || (done == 0 || refused == 0) && i < 10_000; i++ {
		var answer *fermatav1.Job
		var err error
		if i%2 == 0 {
			answer, err = c.PauseJob(x.as("scaler-a"), &fermatav1.PauseJobRequest{Name: name})
		} else {
			answer, err = c.ResumeJob(x.as("scaler-a"), &fermatav1.ResumeJobRequest{Name: name})
		}
		switch code := status.Code(err); {
		case code == codes.NotFound:
			refused++
		case err != nil && code != codes.Aborted:
			t.Fatal(err)
		case err == nil && answer.GetQueue() != "mail":
			t.Fatalf("call %d changed the job in queue %q", i, answer.GetQueue())
		case err == nil:
			done++
		}
	}
	close(end)
	if err := <-moved; err != nil {
		t.Error(err)
	}
	if done == 0 || refused == 0 {
		t.Errorf("%d calls were done and %d refused: this proves nothing", done, refused)
	}
}

// TestTokensOfSomeQueues: neither pages nor their tokens nor events show a viewer of one queue
// whether there are jobs of another one, by whatever filter.
func TestTokensOfSomeQueues(t *testing.T) {
	const pageTime = 50 * time.Millisecond // for which a page looks at jobs
	x := newTenants(t, "  - {subjects: [\"token:scaler-a\"], role: viewer, namespaces: [a], queues: [mail]}\n")
	c := fermatav1.NewJobServiceClient(x.conn)
	create := func(id, queue string) {
		t.Helper()
		j := intervalJob(time.Hour, "h")
		j.Queue, j.Labels = queue, map[string]string{"customer": "acme"}
		if _, err := c.CreateJob(x.as("editor-a"), &fermatav1.CreateJobRequest{Parent: "namespaces/a", JobId: id, Job: j}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		create(fmt.Sprintf("secret-%d", i), "web")
	}
	create("open", "mail")
	for text, q := range map[string]*fermatav1.ListJobsRequest{
		"hidden id": {IdPrefix: "secret"}, "no id": {IdPrefix: "nothing"}, "label": {Labels: map[string]string{"customer": "acme"}}, "all": {},
	} {
		q.Parent, q.PageSize = "namespaces/a", 1
		shown := 0
		for pages := 0; pages == 0 || q.PageToken != ""; pages++ {
			began := time.Now()
			r, err := c.ListJobs(x.as("scaler-a"), q)
			if err != nil {
				t.Fatal(err)
			}
			outOfTime := time.Since(began) >= pageTime // any page may end early then
			position, _ := base64.RawURLEncoding.DecodeString(r.GetNextPageToken())
			if len(r.GetJobs()) == 0 && r.GetNextPageToken() != "" && !outOfTime || strings.Contains(string(position), "secret") {
				t.Fatalf("%s: %d jobs and the token %s", text, len(r.GetJobs()), position)
			}
			shown, q.PageToken = shown+len(r.GetJobs()), r.GetNextPageToken()
		}
		if want := map[string]int{"label": 1, "all": 1}[text]; shown != want {
			t.Errorf("%s: %d jobs, want %d", text, shown, want)
		}
	}
	watch := func(ids ...string) (batches int) {
		s, err := fermatav1.NewEventServiceClient(x.conn).WatchEvents(x.as("scaler-a"), &fermatav1.WatchEventsRequest{
			Parent: "namespaces/a", JobIds: ids, StartTime: timestamppb.New(time.Unix(1, 0)), StopAtEnd: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		for {
			b, err := s.Recv()
			if err == io.EOF {
				return batches
			}
			if err != nil {
				t.Fatal(err)
			}
			if batches++; strings.Contains(fmt.Sprint(b.GetEvents()), "secret") {
				t.Errorf("shown are %v", b.GetEvents())
			}
		}
	}
	redistest.Eventually(t, redistest.Patience, "the event of the open job", func(context.Context) error {
		if hidden, none, open := watch("secret-1"), watch("nothing"), watch("open"); hidden != none || open <= none {
			return fmt.Errorf("batches: %d about a hidden job, %d about none, %d about an open one", hidden, none, open)
		}
		return nil
	})
}
