package acceptance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

const pythonSDK = "../../../sdk/python"

// pythonWorker is a Python process whose handlers wait for files.
type pythonWorker struct {
	*process
	t   *testing.T
	dir string
}

// startPython starts a script that uses the package of sdk/python.
func startPython(t *testing.T, script, address string) *pythonWorker {
	t.Helper()
	modules, err := filepath.Abs(pythonSDK)
	if err != nil {
		t.Fatal(err)
	}
	w := &pythonWorker{t: t, dir: t.TempDir()}
	w.process = startProcess(t, "python-worker", []string{
		"FERMATA_ADDRESS=" + address, "PYTHON_WORKER_DIR=" + w.dir, "PYTHONPATH=" + modules, "PYTHONDONTWRITEBYTECODE=1",
	}, pythonCommand(t), "-X", "dev", "-W", "ignore::ResourceWarning", script)
	return w
}

// pythonCommand returns a Python that has grpcio: most often that of the distribution, as `make deps` installs it.
func pythonCommand(t *testing.T) string {
	t.Helper()
	for _, path := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(path, "-c", "import grpc, google.protobuf").Run() == nil {
			return path
		}
	}
	t.Fatal("no python3 with the packages grpcio and protobuf: run make deps")
	return ""
}

func (w *pythonWorker) release(id string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, id+".release"), nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// await waits for the lines that a handler has written about an event, one for each call.
func (w *pythonWorker) await(id, event, want string) {
	w.t.Helper()
	redistest.Eventually(w.t, patience, id+" "+event, func() error {
		have, err := os.ReadFile(filepath.Join(w.dir, id+"."+event))
		if err == nil && string(have) != want {
			err = fmt.Errorf("got %q, want %q", have, want)
		}
		return err
	})
}

// pythonRuns creates jobs for a Python worker, and runs them.
type pythonRuns struct {
	t *testing.T
	c *client.Client
}

func (p pythonRuns) run(id, handler string) *client.Run {
	p.t.Helper()
	_, err := p.c.CreateJob(callContext(p.t), id, &client.Job{
		Queue: "python", Handler: handler, Payload: []byte(id), Timeout: durationpb.New(10 * time.Minute),
		RetryPolicy: &client.RetryPolicy{MaxAttempts: 2},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	run, _, err := p.c.RunJob(callContext(p.t), id, client.RunOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return run
}

// want waits for the end of a run.
func (p pythonRuns) want(run *client.Run, outcome client.Outcome, attempts int32, output string) {
	p.t.Helper()
	end, err := p.c.WaitRun(callContext(p.t), run.GetName())
	if err != nil {
		p.t.Fatal(err)
	}
	if end.GetOutcome() != outcome || end.GetAttempts() != attempts || output != "" && string(end.GetOutput()) != output {
		p.t.Errorf("ended as %v, want %v after %d attempts with output %q", end, outcome, attempts, output)
	}
}

// TestPythonWorkerSurvivesItsNode: a node is killed and started again at the same address. Handlers of the Python
// worker go on. It keeps the result of the one that ends meanwhile until the new process has acknowledged it. Then
// runs are cancelled and retried, and SIGTERM lets the last one finish.
func TestPythonWorkerSurvivesItsNode(t *testing.T) {
	runBesideOthers(t)
	c := newCluster(t, newRedis(t).URL(), "--lease-ttl", "2m", "--session-ttl", "1m")
	n := c.startNode("a")
	c.awaitSettled()
	calls, err := client.Dial([]string{n.grpc}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	p := pythonRuns{t, calls}
	w := startPython(t, "testdata/python_worker.py", n.grpc)

	meanwhile, across := p.run("meanwhile", "hold"), p.run("across", "hold")
	w.await("meanwhile", "begun", "1 None\n")
	w.await("across", "begun", "1 None\n")
	c.killNode(n)
	w.release("meanwhile")
	w.await("meanwhile", "ended", "1 None\n")
	n = c.startNode("a", "--grpc-addr", n.grpc)
	p.want(meanwhile, client.OutcomeSucceeded, 1, "released")
	w.release("across")
	p.want(across, client.OutcomeSucceeded, 1, "released")
	w.await("meanwhile", "begun", "1 None\n")
	w.await("across", "begun", "1 None\n")

	p.want(p.run("fails", "fail-once"), client.OutcomeSucceeded, 2, "")
	cancelled := p.run("cancelled", "hold")
	w.await("cancelled", "begun", "1 None\n")
	if _, err := calls.CancelRun(callContext(t), cancelled.GetName()); err != nil {
		t.Fatal(err)
	}
	p.want(cancelled, client.OutcomeCancelled, 1, "")
	w.await("cancelled", "ended", "1 cancelled\n")

	last := p.run("last", "hold")
	w.await("last", "begun", "1 None\n")
	w.sendSignal(syscall.SIGTERM)
	redistest.Eventually(t, patience, "the worker drains", func() error {
		if w.countLogged("draining") == 0 {
			return fmt.Errorf("not logged")
		}
		return nil
	})
	late := p.run("late", "hold")
	w.release("last")
	w.terminate(patience)
	p.want(last, client.OutcomeSucceeded, 1, "released")
	if run, err := calls.GetRun(callContext(t), late.GetName()); err != nil || run.GetState() != client.RunWaiting {
		t.Errorf("a worker that drains has started %v, %v", run, err)
	}
	c.stopNode(n)
}

// TestPythonWorkerGivesItsLeasesUp: without a node the Python worker ends its handlers before other workers could have
// their leases. The attempt is not counted, and starts again when there is a node.
func TestPythonWorkerGivesItsLeasesUp(t *testing.T) {
	runBesideOthers(t)
	c := newCluster(t, newRedis(t).URL())
	n := c.startNode("a")
	c.awaitSettled()
	calls, err := client.Dial([]string{n.grpc}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	p := pythonRuns{t, calls}
	w := startPython(t, "testdata/python_worker.py", n.grpc)
	run := p.run("lost", "hold")
	w.await("lost", "begun", "1 None\n")
	c.killNode(n)
	w.await("lost", "ended", "1 lease lost\n")
	n = c.startNode("a", "--grpc-addr", n.grpc)
	w.await("lost", "begun", "1 None\n1 None\n")
	w.release("lost")
	p.want(run, client.OutcomeSucceeded, 1, "released")
	w.terminate(patience)
	c.stopNode(n)
}

// TestPythonExample runs the program that people copy, on a node that stops for good while another one is there.
func TestPythonExample(t *testing.T) {
	runBesideOthers(t)
	c := newCluster(t, newRedis(t).URL())
	a, b := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	calls, err := client.Dial([]string{b.grpc}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	w := startPython(t, filepath.Join(pythonSDK, "examples/worker.py"), a.grpc)
	digest := func(id, account string) *client.Run {
		t.Helper()
		_, err := calls.CreateJob(callContext(t), id, &client.Job{Queue: "mail", Handler: "send-digest", Payload: []byte(account)})
		if err != nil {
			t.Fatal(err)
		}
		run, _, err := calls.RunJob(callContext(t), id, client.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	p := pythonRuns{t, calls}
	p.want(digest("ada", "ada@example.com"), client.OutcomeSucceeded, 1, "sent to ada@example.com")
	p.want(digest("empty", ""), client.OutcomeDead, 1, "")
	c.stopNode(a)
	p.want(digest("bob", "bob@example.com"), client.OutcomeSucceeded, 1, "sent to bob@example.com")
	w.terminate(patience)
}
