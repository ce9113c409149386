package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// longRun ends at an instant.
type longRun struct {
	fermatav1.JobServiceClient
	end time.Time
}

func (r *longRun) GetRun(context.Context, *fermatav1.GetRunRequest, ...grpc.CallOption) (*fermatav1.Run, error) {
	if time.Now().Before(r.end) {
		return &fermatav1.Run{State: fermatav1.Run_STATE_RUNNING}, nil
	}
	return &fermatav1.Run{State: fermatav1.Run_STATE_FINISHED}, nil
}

// It is waited for until shortly before the context ends, however long pauses are by then.
func TestWaitRunPollsUntilTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration]error{60 * time.Millisecond: nil, time.Millisecond: context.DeadlineExceeded} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			c := &Client{jobs: &longRun{end: time.Now().Add(10*time.Second - left)}}
			if _, err := c.WaitRun(ctx, "namespaces/default/jobs/j/runs/1"); !errors.Is(err, want) {
				t.Errorf("a run that ends %v before: %v, want %v", left, err, want)
			}
			cancel()
		}
	})
}
