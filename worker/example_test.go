package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/worker"
)

// nodes returns the addresses of some nodes of the cluster.
func nodes() []string { return []string{exampleNode.Address()} }

// quiet keeps the worker's log out of the output of examples.
var quiet = slog.New(slog.DiscardHandler)

// A complete program: it serves the queue "billing" until SIGTERM, and then finishes what runs.
func Example() {
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	w, err := worker.New(worker.Options{
		Addresses: []string{"scheduler-0:7070", "scheduler-1:7070"}, // any nodes
		Queues:    []string{"billing"},
		Slots:     32,
		Logger:    logger,
	})
	if err != nil {
		log.Fatal(err)
	}
	worker.HandleJSON(w, "send-invoice", sendInvoice)
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// Invoice is the payload of send-invoice.
type Invoice struct {
	Customer string
	Cents    int64
}

var (
	errNoSuchCustomer = errors.New("no such customer")
	errBusy           = errors.New("mail server is busy")
)

func sendInvoice(ctx context.Context, t *worker.Task, i Invoice) error {
	// The name of the run makes sending idempotent; the token fences what is written.
	switch err := mail(ctx, i.Customer, t.Run, t.Token); {
	case errors.Is(err, errNoSuchCustomer):
		return worker.Permanent(err)
	case errors.Is(err, errBusy):
		return worker.RetryAfter(err, 5*time.Minute)
	case err != nil:
		return err
	}
	t.SetOutput(fmt.Appendf(nil, "sent %d cents", i.Cents))
	return nil
}

func mail(_ context.Context, customer, _ string, _ int64) error {
	switch customer {
	case "nobody":
		return errNoSuchCustomer
	case "busy":
		return errBusy
	}
	return nil
}

// runOnce creates a job of a new namespace, runs it on a worker, and returns the end of the run.
func runOnce(namespace, handler, payload string, register func(*worker.Worker)) *client.Run {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, err := worker.New(worker.Options{Addresses: nodes(), Namespace: namespace, Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	register(w)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.Background()) }()
	c, err := client.Dial(nodes(), client.Options{Namespace: namespace})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err = c.CreateJob(ctx, "job", &client.Job{Handler: handler, Payload: []byte(payload)}); err != nil {
		log.Fatal(err)
	}
	run, _, err := c.RunJob(ctx, "job", client.RunOptions{})
	if err != nil {
		log.Fatal(err)
	}
	run, err = c.WaitRun(ctx, run.GetName())
	if err := errors.Join(err, w.Stop(ctx), <-ended); err != nil {
		log.Fatal(err)
	}
	return run
}

// A handler whose payload is JSON. A payload that does not fit ends the run at once.
func ExampleHandleJSON() {
	register := func(w *worker.Worker) { worker.HandleJSON(w, "send-invoice", sendInvoice) }

	run := runOnce("json", "send-invoice", `{"customer":"ada","cents":1200}`, register)
	fmt.Println(run.GetOutcome() == client.OutcomeSucceeded, string(run.GetOutput()))

	run = runOnce("json-wrong", "send-invoice", `{"cents":"many"}`, register)
	fmt.Println(run.GetOutcome() == client.OutcomeDead, "attempts:", run.GetAttempts())
	// Output:
	// true sent 1200 cents
	// true attempts: 1
}

// The error of a handler decides what follows. Without a mark, the retry policy of the job applies.
func ExamplePermanent() {
	run := runOnce("permanent", "send-invoice", `{"customer":"nobody"}`, func(w *worker.Worker) {
		worker.HandleJSON(w, "send-invoice", sendInvoice)
	})
	fmt.Println(run.GetOutcome() == client.OutcomeDead, "attempts:", run.GetAttempts(), "error:", run.GetError())
	// Output: true attempts: 1 error: no such customer
}

// Ask for a delay before the next attempt, for example that of a Retry-After header.
func ExampleRetryAfter() {
	run := runOnce("later", "poll", "", func(w *worker.Worker) {
		w.Handle("poll", func(_ context.Context, t *worker.Task) error {
			if t.Attempt == 1 {
				return worker.RetryAfter(errors.New("not ready"), 10*time.Millisecond)
			}
			return nil
		})
	})
	fmt.Println(run.GetOutcome() == client.OutcomeSucceeded, "attempts:", run.GetAttempts())
	// Output: true attempts: 2
}

// Middleware runs around every handler: it logs, measures, or adds values to the context.
func ExampleWorker_Use() {
	logged := func(next worker.Handler) worker.Handler {
		return func(ctx context.Context, t *worker.Task) error {
			err := next(ctx, t)
			fmt.Println("job", t.Job, "attempt", t.Attempt, "error:", err)
			return err
		}
	}
	runOnce("middleware", "greet", "ada", func(w *worker.Worker) {
		w.Use(logged)
		w.Handle("greet", func(_ context.Context, t *worker.Task) error {
			fmt.Println("hello", string(t.Payload))
			return nil
		})
	})
	// Output:
	// hello ada
	// job job attempt 1 error: <nil>
}

// Stop finishes what runs, as the end of Run's context does. Where that takes too long, Abort cancels the handlers,
// and their attempts are leased again.
func ExampleWorker_Stop() {
	w, err := worker.New(worker.Options{Addresses: nodes(), Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	w.Handle("greet", func(context.Context, *worker.Task) error { return nil })
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.Background()) }()

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := w.Stop(ctx); errors.Is(err, context.DeadlineExceeded) {
		w.Abort()
	}
	fmt.Println(<-ended)
	// Output: <nil>
}

// Fence what a handler writes: a later attempt has a larger token, and the store refuses smaller ones. So an attempt
// that lost its lease without noticing cannot overwrite the result of a later one.
func ExampleTask_token() {
	var newest int64
	write := func(token int64, value string) error { // UPDATE ... SET token = $1, value = $2 WHERE token <= $1
		if token < newest {
			return errors.New("written by a later attempt")
		}
		newest = token
		fmt.Println("wrote", value)
		return nil
	}
	handle := func(_ context.Context, t *worker.Task) error {
		return write(t.Token, fmt.Sprint("attempt ", t.Attempt))
	}

	late := &worker.Task{Attempt: 1, Token: 7000}
	fmt.Println(handle(context.Background(), &worker.Task{Attempt: 2, Token: 8000}))
	fmt.Println(handle(context.Background(), late))
	// Output:
	// wrote attempt 2
	// <nil>
	// written by a later attempt
}

// A handler is a function, and a Task is a struct: a test needs neither a worker nor a node.
func ExampleHandler_test() {
	task := &worker.Task{Run: "namespaces/shop/jobs/invoice/runs/1", Attempt: 3, MaxAttempts: 3}
	err := sendInvoice(context.Background(), task, Invoice{Customer: "nobody"})
	fmt.Println("permanent:", worker.IsPermanent(err), "last attempt:", task.LastAttempt())

	err = sendInvoice(context.Background(), task, Invoice{Customer: "ada", Cents: 1200})
	fmt.Println(err, string(task.Output()))
	// Output:
	// permanent: true last attempt: true
	// <nil> sent 1200 cents
}

// The context of a handler ends with its cause.
func ExampleErrLeaseLost() {
	handle := func(ctx context.Context, _ *worker.Task) error {
		<-ctx.Done() // or pass ctx to whatever blocks
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, worker.ErrLeaseLost):
			fmt.Println("another worker may run the next attempt: write nothing")
		case errors.Is(cause, worker.ErrStopped):
			fmt.Println("this worker stops: the attempt will be leased again")
		case errors.Is(cause, worker.ErrTimeout), errors.Is(cause, worker.ErrCancelled):
			fmt.Println("clean up and return")
		}
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(worker.ErrLeaseLost)
	fmt.Println(handle(ctx, &worker.Task{}))
	// Output:
	// another worker may run the next attempt: write nothing
	// the lease is lost
}
