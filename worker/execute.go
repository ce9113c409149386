package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// maxLoggedStack bounds the stack of a panic in the log.
	maxLoggedStack = 8 << 10
	// maxFrames bounds the frames of a panic in the attempt's error.
	maxFrames = 8
)

var errGoexit = errors.New("the handler ended its goroutine without returning")

// ending is how a handler ended.
type ending struct {
	failure *failure // nil: it succeeded
	cause   error    // of the end of its context, nil if that had not ended
	at      time.Time
	took    time.Duration
}

// failure is what is told of the error of a handler.
type failure struct {
	text       string
	permanent  bool
	retryAfter time.Duration // 0: nothing is wished
}

func failureOf(err error) *failure {
	return &failure{text: errorText(err), permanent: IsPermanent(err), retryAfter: max(0, retryAfterOf(err))}
}

// ending ends the context of a handler that began at start and has ended.
func (a *attempt) ending(f *failure, start time.Time) ending {
	now := time.Now()
	e := ending{failure: f, cause: a.ctx.endedBy(now), at: now, took: now.Sub(start)}
	a.ctx.end(context.Canceled, now)
	return e
}

// call runs the handler; nil tells that it succeeded. The methods of its error are its own
// code, too, and may panic like it.
func (w *Worker) call(a *attempt) (f *failure) {
	defer func() {
		if v := recover(); v != nil {
			f = failureOf(w.panicked(a, v))
		}
	}()
	if a.handler == nil {
		return failureOf(fmt.Errorf("no handler %q on this worker", a.task.Handler))
	}
	if err := a.handler.handle(&a.ctx, &a.task); err != nil {
		return failureOf(err)
	}
	return nil
}

// panicked logs the whole stack and makes an error that holds the part of it that
// fits in a stored error. It runs below the panic.
func (w *Worker) panicked(a *attempt, v any) error {
	stack := debug.Stack()
	w.log(slog.LevelError, "handler panicked", a, slog.String("panic", fmt.Sprint(v)), slog.String("stack", job.Clip(string(stack), maxLoggedStack)))
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	var at []string
	inHandler := false
	for len(at) < maxFrames {
		f, more := frames.Next()
		switch {
		case !inHandler:
			inHandler = f.Function == "runtime.gopanic"
		case strings.HasSuffix(f.Function, ".(*Worker).call"):
			more = false
		case !strings.HasPrefix(f.Function, "runtime."):
			at = append(at, fmt.Sprintf("%s (%s:%d)", filepath.Base(f.Function), filepath.Base(f.File), f.Line))
		}
		if !more {
			break
		}
	}
	return fmt.Errorf("panic: %s at %s", job.Clip(fmt.Sprint(v), job.MaxError/2), strings.Join(at, " < "))
}

// outcome decides what is reported. An error of a handler whose lease was lost,
// or which the worker stopped, is not the handler's failure: label says so.
func (e ending) outcome() (outcome fermatav1.Result_Outcome, label string) {
	switch {
	case e.failure == nil:
		return fermatav1.Result_OUTCOME_SUCCEEDED, succeeded
	case errors.Is(e.cause, ErrLeaseLost):
		return fermatav1.Result_OUTCOME_FAILED, "lease_lost"
	case errors.Is(e.cause, ErrStopped):
		return fermatav1.Result_OUTCOME_FAILED, "stopped"
	case e.failure.permanent:
		return fermatav1.Result_OUTCOME_FAILED_PERMANENTLY, "failed_permanently"
	case errors.Is(e.cause, ErrTimeout):
		return fermatav1.Result_OUTCOME_TIMED_OUT, "timed_out"
	case errors.Is(e.cause, ErrCancelled):
		return fermatav1.Result_OUTCOME_CANCELLED, "cancelled"
	}
	return fermatav1.Result_OUTCOME_FAILED, "failed"
}

// report makes the result of an attempt.
func (w *Worker) report(a *attempt, e ending) result {
	outcome, label := e.outcome()
	w.metrics.ended(a.handler, label, e.took)
	if w.traces(a) {
		endSpan(a, label, e)
	}
	r := result{outcome: outcome, output: a.task.Output(), took: e.took}
	if e.failure == nil {
		return r
	}
	r.text, r.retryAfter = e.failure.text, e.failure.retryAfter
	w.log(slog.LevelInfo, "attempt failed", a, slog.String("outcome", label), slog.String("error", r.text))
	return r
}

// errorText is never empty and fits in a stored error.
func errorText(err error) string {
	if text := job.Clip(err.Error(), job.MaxError); text != "" {
		return text
	}
	return fmt.Sprintf("%T", err)
}
