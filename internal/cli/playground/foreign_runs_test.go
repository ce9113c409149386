package playground

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// TestRunsOfOtherWorkersAreNamedAtTheEnd: the end waits for them, and does not claim to have drained.
func TestRunsOfOtherWorkersAreNamedAtTheEnd(t *testing.T) {
	p := play(t, Options{})
	other, err := worker.New(worker.Options{Addresses: []string{p.grpc}, Queues: []string{"mine"}, ID: "outside", Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	began, release := make(chan struct{}), make(chan struct{})
	other.Handle("wait", func(context.Context, *worker.Task) error {
		close(began)
		<-release
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- other.Run(ctx) }()
	t.Cleanup(func() {
		close(release)
		stop()
		other.Abort()
		<-ended
	})
	job := &client.Job{Queue: "mine", Handler: "wait", Schedule: client.Every(time.Hour)}
	if _, err := p.client.CreateJob(t.Context(), "long", job); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.client.RunJob(t.Context(), "long", client.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	<-began
	redistest.Eventually(t, redistest.Patience, "a live run", func() bool {
		workers, err := p.client.Admin().Workers(t.Context())
		return err == nil && describeWorkers(workers, "mine") != "" &&
			p.status(t, "long").GetState() == fermatav1.JobStatus_STATE_RUNNING
	})
	p.cancel()
	redistest.Eventually(t, redistest.Patience, "the name of the run", func() bool {
		return strings.Contains(p.out.String(), " of long on worker outside")
	})
	close(p.abort)
	if err := p.wait(t); err != nil {
		t.Error(err)
	}
	if text := p.out.String(); strings.Contains(text, "Drained") || !strings.Contains(text, "Stopped before the end of run") {
		t.Errorf("it ended with\n%s", text)
	}
}

// TestTakenAddressesAreExplained: the advice is one that a user of make run can follow.
func TestTakenAddressesAreExplained(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, o := range []Options{{GRPCAddr: l.Addr().String()}, {RESTAddr: l.Addr().String(), GRPCAddr: "127.0.0.1:0"}} {
		o.HTTPAddr, o.Plain, o.Out = "127.0.0.1:0", true, &transcript{}
		t.Setenv("TMPDIR", t.TempDir())
		err := Run(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), "bin/scheduler dev --help") {
			t.Errorf("%+v: %v", o, errors.Unwrap(err))
		}
	}
}
