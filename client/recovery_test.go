package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (n *node) ListDeadLetters(_ context.Context, q *fermatav1.ListDeadLettersRequest) (*fermatav1.ListDeadLettersResponse, error) {
	if err := n.next(""); err != nil {
		return nil, err
	}
	if q.GetPageToken() == "" {
		return &fermatav1.ListDeadLettersResponse{DeadLetters: []*fermatav1.DeadLetter{{Name: q.GetParent() + "/" + q.GetQueue()}}, NextPageToken: "2"}, nil
	}
	return &fermatav1.ListDeadLettersResponse{DeadLetters: []*fermatav1.DeadLetter{{Name: "last"}}}, nil
}

func (n *node) RedriveDeadLetters(_ context.Context, q *fermatav1.RedriveDeadLettersRequest) (*fermatav1.RedriveDeadLettersResponse, error) {
	if err := n.next(""); err != nil {
		return nil, err
	}
	r := &fermatav1.RedriveDeadLettersResponse{Redriven: int32(len(q.GetNames())), Refused: 1}
	if len(q.GetNames()) == 0 && q.GetPageToken() == "" {
		r.Redriven, r.NextPageToken = 7, "2"
	}
	return r, nil
}

func (n *node) ResumeJobs(_ context.Context, q *fermatav1.ResumeJobsRequest) (*fermatav1.ResumeJobsResponse, error) {
	if err := n.next(""); err != nil {
		return nil, err
	}
	if q.GetPageToken() == "" {
		return &fermatav1.ResumeJobsResponse{Resumed: 5, NextPageToken: "2"}, nil
	}
	return &fermatav1.ResumeJobsResponse{Resumed: 2}, nil
}

func (n *node) PauseJobs(_ context.Context, q *fermatav1.PauseJobsRequest) (*fermatav1.PauseJobsResponse, error) {
	if err := n.next(""); err != nil {
		return nil, err
	}
	if q.GetPageToken() == "" && q.GetNote() == "deploy" {
		return &fermatav1.PauseJobsResponse{Paused: 3, NextPageToken: "2"}, nil
	}
	return &fermatav1.PauseJobsResponse{Paused: 1}, nil
}

func (n *node) GetRun(_ context.Context, q *fermatav1.GetRunRequest) (*fermatav1.Run, error) {
	if err := n.next(""); err != nil {
		return nil, err
	}
	run := &fermatav1.Run{Name: q.GetName(), State: fermatav1.Run_STATE_FINISHED}
	if n.running.Load() || n.count() < 5 {
		run.State = fermatav1.Run_STATE_RUNNING
	}
	return run, nil
}

func (n *node) BackfillJob(_ context.Context, q *fermatav1.BackfillJobRequest) (*fermatav1.Job, error) {
	return &fermatav1.Job{Name: q.GetName()}, n.next(q.GetRequestId())
}

func TestDeadLettersReadAllPages(t *testing.T) {
	n := start(t)
	c := dial(t, client.Options{}, n.address)
	var names []string
	for l, err := range c.DeadLetters(t.Context(), client.Selection{Queue: "mail"}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, l.GetName())
	}
	if !slices.Equal(names, []string{"namespaces/default/mail", "last"}) {
		t.Errorf("names %v", names)
	}
	n.fail = []error{failure(codes.NotFound)}
	for _, err := range c.DeadLetters(t.Context(), client.Selection{}) {
		if !client.IsNotFound(err) {
			t.Errorf("error %v", err)
		}
	}
}

func TestRedriveInBatchesAndPages(t *testing.T) {
	n := start(t)
	c := dial(t, client.Options{}, n.address)
	names := make([]string, 2100)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	if sum, err := c.RedriveDeadLetters(t.Context(), names, client.RedriveOptions{}); err != nil || sum != (client.RedriveResult{Redriven: 2100, Refused: 3}) || n.count() != 3 {
		t.Errorf("%+v %v in %d calls", sum, err, n.count())
	}
	if sum, err := c.RedriveSelected(t.Context(), client.Selection{Queue: "mail"}, client.RedriveOptions{}); err != nil || sum != (client.RedriveResult{Redriven: 7, Refused: 2}) {
		t.Errorf("%+v %v", sum, err)
	}
	// What was done before an error is reported.
	n.fail = []error{nil, failure(codes.ResourceExhausted)}
	if sum, err := c.RedriveDeadLetters(t.Context(), names, client.RedriveOptions{}); err == nil || sum.Redriven != 1000 {
		t.Errorf("%+v %v", sum, err)
	}
	n.fail = []error{nil, failure(codes.ResourceExhausted)}
	if resumed, err := c.ResumeJobs(t.Context(), client.PausedSelection{}, client.ResumeOptions{CatchUp: true}); err == nil || resumed != 5 {
		t.Errorf("%d %v", resumed, err)
	}
	if resumed, err := c.ResumeJobs(t.Context(), client.PausedSelection{}, client.ResumeOptions{CatchUp: true}); err != nil || resumed != 7 {
		t.Errorf("%d %v", resumed, err)
	}
	n.fail = []error{nil, failure(codes.ResourceExhausted)}
	if paused, err := c.PauseJobs(t.Context(), client.Selection{}, client.PauseOptions{Note: "deploy"}); err == nil || paused != 3 {
		t.Errorf("%d %v", paused, err)
	}
	if paused, err := c.PauseJobs(t.Context(), client.Selection{}, client.PauseOptions{Note: "deploy"}); err != nil || paused != 4 {
		t.Errorf("%d %v", paused, err)
	}
}

func TestWaitRunPollsUntilTheEnd(t *testing.T) {
	n := start(t)
	c := dial(t, client.Options{Attempts: 1}, n.address)
	n.fail = []error{nil, failure(codes.Unavailable), failure(codes.DeadlineExceeded)}
	if run, err := c.WaitRun(t.Context(), c.RunName("ping", "1")); err != nil || run.GetState() != fermatav1.Run_STATE_FINISHED {
		t.Errorf("%v %v after %d calls", run, err, n.count())
	}
	n.fail = []error{failure(codes.NotFound)}
	if _, err := c.WaitRun(t.Context(), c.RunName("ping", "1")); !client.IsNotFound(err) {
		t.Errorf("of a run that is not kept: %v", err)
	}
	n.running.Store(true)
	short, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond) // none for a second look
	defer cancel()
	if _, err := c.WaitRun(short, c.RunName("ping", "1")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of a run that goes on: %v", err)
	}
}

func TestBackfillKeepsItsIDOverRetries(t *testing.T) {
	n := start(t)
	n.fail = []error{failure(codes.Unavailable, soon())}
	c := dial(t, client.Options{}, n.address)
	id, _, err := c.BackfillJob(t.Context(), "ping", client.Backfill{From: time.Unix(0, 0), To: time.Unix(60, 0)})
	if err != nil || len(n.requests) != 2 || n.requests[0] != id || n.requests[1] != id {
		t.Errorf("%s %v: requests %q", id, err, n.requests)
	}
}
