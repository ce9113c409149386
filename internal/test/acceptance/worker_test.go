package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/worker"
)

// handlerName is the one handler of the tests' workers.
const handlerName = "acceptance"

// behaviour is a job's payload: what its handler does.
type behaviour struct {
	Sleep time.Duration `json:"sleep,omitempty"`
	// While lasts as long as the file exists.
	While string `json:"while,omitempty"`
	// Fail always; FailAttempts fails that many attempts of each run; FailWhile
	// fails as long as the file exists.
	Fail         bool   `json:"fail,omitempty"`
	FailAttempts int    `json:"fail_attempts,omitempty"`
	FailWhile    string `json:"fail_while,omitempty"`
	// RetryAfter is asked for with each failure.
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	// Stubborn handlers do not heed their context.
	Stubborn bool `json:"stubborn,omitempty"`
	// Poison ends the worker process, after Sleep.
	Poison bool `json:"poison,omitempty"`
}

func (b behaviour) encodePayload() []byte {
	text, err := json.Marshal(b)
	if err != nil {
		panic(err)
	}
	return text
}

// workerConfig configures a worker process.
type workerConfig struct {
	ID        string   `json:"id"`
	Addresses []string `json:"addresses"`
	Queues    []string `json:"queues"`
	Slots     int      `json:"slots"`
	Evidence  string   `json:"evidence"`
}

// startWorker runs a worker process that knows these nodes' addresses.
func (c *cluster) startWorker(id string, slots int, addresses ...string) *process {
	c.t.Helper()
	return c.startWorkerOf(id, slots, []string{"default"}, addresses...)
}

func (c *cluster) startWorkerOf(id string, slots int, queues []string, addresses ...string) *process {
	c.t.Helper()
	return c.startProgram(goProgram(c.t), id, slots, queues, addresses...)
}

// workerProgram is a program that takes its configuration from configEnv, and records what its handlers do as this
// package's worker does.
type workerProgram struct {
	Prefix  string // of the workers' ids on a bed
	Command []string
	Env     []string
}

// goProgram is the test binary as a worker.
func goProgram(t testing.TB) workerProgram {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return workerProgram{Prefix: "w", Command: []string{self}, Env: []string{roleEnv + "=worker"}}
}

// startProgram runs a worker process of any program.
func (c *cluster) startProgram(
	program workerProgram, id string, slots int, queues []string, addresses ...string,
) *process {
	c.t.Helper()
	config := workerConfig{
		ID: id, Addresses: addresses, Queues: queues, Slots: slots,
		Evidence: filepath.Join(c.t.TempDir(), id+".jsonl"),
	}
	text, err := json.Marshal(config)
	if err != nil {
		c.t.Fatal(err)
	}
	c.evidence = append(c.evidence, evidence{path: config.Evidence})
	env := append(slices.Clone(program.Env), configEnv+"="+string(text))
	p := startProcess(c.t, "worker-"+id, env, program.Command[0], program.Command[1:]...)
	if c.spawned != nil {
		c.spawned(id, p.cmd.Process.Pid)
	}
	p.awaitLog(patience, "acceptance worker is up")
	return p
}

// runWorker is the worker process.
func runWorker(text []byte) error {
	var config workerConfig
	if err := json.Unmarshal(text, &config); err != nil {
		return err
	}
	file, err := os.OpenFile(config.Evidence, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	w, err := worker.New(worker.Options{
		Addresses: config.Addresses, Queues: config.Queues, Slots: config.Slots, ID: config.ID,
		DrainTimeout: 10 * time.Second, Logger: logger,
	})
	if err != nil {
		return err
	}
	r := &recorder{worker: config.ID, file: file}
	w.Handle(handlerName, r.handleTask)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	logger.Info("acceptance worker is up")
	return w.Run(ctx)
}

// recorder appends to a file what handlers do. Each event is one write, so that
// a killed process leaves whole lines.
type recorder struct {
	worker string
	file   *os.File
}

func (r *recorder) writeEvent(kind historycheck.EventKind, t *worker.Task, outcome string) {
	line, err := json.Marshal(historycheck.Event{
		AtNS: time.Now().UnixNano(), Kind: kind, Worker: r.worker, Job: t.Job, Run: t.Run, Attempt: t.Attempt,
		Token: t.Token, NominalMS: t.NominalTime.UnixMilli(), DueMS: t.DueTime.UnixMilli(), Outcome: outcome,
	})
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("evidence: %v", err))
	}
}

func (r *recorder) handleTask(ctx context.Context, t *worker.Task) error {
	r.writeEvent(historycheck.Start, t, "")
	untell := context.AfterFunc(ctx, func() { r.writeEvent(historycheck.ContextCancelled, t, "") })
	err := runBehaviour(ctx, t)
	untell()
	switch {
	case err == nil:
		r.writeEvent(historycheck.End, t, historycheck.OK)
	case ctx.Err() != nil:
		r.writeEvent(historycheck.End, t, historycheck.Cancelled)
	default:
		r.writeEvent(historycheck.End, t, historycheck.Failed)
	}
	return err
}

func runBehaviour(ctx context.Context, t *worker.Task) error {
	var b behaviour
	if err := t.Decode(&b); err != nil {
		return err
	}
	if b.Sleep > 0 {
		done := ctx.Done()
		if b.Stubborn {
			done = nil
		}
		select {
		case <-time.After(b.Sleep):
		case <-done:
			return ctx.Err()
		}
	}
	if err := b.waitDuration(ctx); err != nil {
		return err
	}
	if b.Poison {
		os.Exit(3)
	}
	if b.FailWhile != "" {
		if _, err := os.Stat(b.FailWhile); err == nil {
			return withRetryAfter(b.RetryAfter, errors.New("told to fail for a while"))
		}
	}
	if b.Fail || t.Attempt <= b.FailAttempts {
		return withRetryAfter(b.RetryAfter, errors.New("told to fail"))
	}
	return nil
}

// waitDuration returns when the file is gone.
func (b behaviour) waitDuration(ctx context.Context) error {
	if b.While == "" {
		return nil
	}
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		if _, err := os.Stat(b.While); err != nil {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// withRetryAfter adds a wish for the next delay to an error.
func withRetryAfter(wait time.Duration, err error) error {
	if wait > 0 {
		return worker.RetryAfter(err, wait)
	}
	return err
}
