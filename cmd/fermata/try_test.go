package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/core/job"
)

// jobs lists the ids of all jobs.
func (c *cluster) jobs() []string {
	c.t.Helper()
	var ids []string
	for i, line := range strings.Split(strings.TrimSpace(c.must("jobs", "list")), "\n") {
		if i > 0 {
			ids = append(ids, strings.Fields(line)[0])
		}
	}
	return ids
}

func TestTrySeesAJobBackOff(t *testing.T) {
	c := startCluster(t)
	type result struct {
		code      int
		out, errs string
	}
	done := make(chan result, 1)
	go func() {
		code, out, errs := c.run("cluster", "self-test", "--request-timeout", "30s")
		done <- result{code, out, errs}
	}()
	var id string
	for id == "" && t.Context().Err() == nil {
		if ids := c.jobs(); len(ids) == 1 {
			id = ids[0]
		}
	}
	c.attempt(id, job.OutcomeFailed, "refused")
	r := <-done
	if r.code != 0 || !strings.Contains(r.out, "now runs every 10s instead of 5s") {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.errs)
	}
	if ids := c.jobs(); len(ids) > 0 {
		t.Errorf("%v is left", ids)
	}
}

// TestTryDeletesItsJob: the job was created, and the answer was lost.
func TestTryDeletesItsJob(t *testing.T) {
	c := startCluster(t)
	cl, err := client.Dial([]string{c.address}, client.Options{Attempts: 1, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, q, a any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
			err := invoke(ctx, method, q, a, conn, o...)
			if strings.HasSuffix(method, "/CreateJob") && err == nil {
				return status.Error(codes.Unavailable, "lost")
			}
			return err
		})}})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	a := &app{standardStreams: standardStreams{strings.NewReader(""), io.Discard, io.Discard}, now: time.Now}
	if err := a.runTrial(t.Context(), cl, "default", time.Minute); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
	if got := c.must("jobs", "list"); strings.Contains(got, "fermata-self-test") {
		t.Errorf("left: %s", got)
	}
}

func TestTryGivesUpWithoutWorkers(t *testing.T) {
	c := startCluster(t)
	code, out, errs := c.run("cluster", "self-test", "--request-timeout", "700ms")
	if code != 1 || !strings.Contains(errs, "no worker has run the job in time") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if ids := c.jobs(); len(ids) > 0 {
		t.Errorf("%v is left", ids)
	}
}

// TestTryTimesOutInAPoll says the same as one whose time ends between two.
func TestTryTimesOutInAPoll(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--every", "1m", "--handler", "h")
	ctx, end := context.WithCancel(t.Context())
	looks := 0
	cl, err := client.Dial([]string{c.address}, client.Options{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, q, a any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
			looks++
			if looks > 1 {
				end()
			}
			return invoke(ctx, method, q, a, conn, o...)
		})}})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	_, err = awaitBackoff(ctx, cl, "ping", time.Minute)
	if code, _ := classifyError(err); code != exitFailed || looks != 2 || !strings.Contains(err.Error(), "no worker has run the job in time") {
		t.Errorf("after %d looks: %v", looks, err)
	}
	if _, err := awaitBackoff(ctx, cl, "ping", time.Minute); status.Code(err) != codes.Canceled {
		t.Errorf("nothing was seen, but: %v", err)
	}
}
