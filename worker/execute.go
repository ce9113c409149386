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
	// maxLoggedStack bounds the logged stack of a panic, in bytes.
	maxLoggedStack = 8 << 10
	// maxFrames bounds the stack frames of a panic in the attempt's error.
	maxFrames = 8
)

var errGoexit = errors.New("the handler ended its goroutine without returning")

// handlerEnd is how a handler ended.
type handlerEnd struct {
	failure *handlerFailure // nil: it succeeded
	cause   error           // why the context had ended; nil: it had not
	at      time.Time
	took    time.Duration
}

// handlerFailure is the reported error of a handler.
type handlerFailure struct {
	text       string
	permanent  bool
	retryAfter time.Duration // 0: no delay requested
}

func newFailure(err error) *handlerFailure {
	return &handlerFailure{text: errorText(err), permanent: IsPermanent(err), retryAfter: max(0, retryAfterHint(err))}
}

// endHandler ends the context of a handler that began at start and has ended.
func (a *attempt) endHandler(f *handlerFailure, start time.Time) handlerEnd {
	now := time.Now()
	e := handlerEnd{failure: f, cause: a.ctx.causeAt(now), at: now, took: now.Sub(start)}
	a.ctx.endWith(context.Canceled, now)
	return e
}

// callHandler runs the handler and returns nil on success. The methods of its error are also the handler's code
// and may panic.
func (w *Worker) callHandler(a *attempt) (f *handlerFailure) {
	defer func() {
		if v := recover(); v != nil {
			f = newFailure(w.panicError(a, v))
		}
	}()
	if a.handler == nil {
		return newFailure(fmt.Errorf("no handler %q on this worker", a.task.Handler))
	}
	if err := a.handler.handle(&a.ctx, &a.task); err != nil {
		return newFailure(err)
	}
	return nil
}

// panicError logs the whole stack and returns an error with the part of it that fits in a stored error. It is
// called while the panic unwinds.
func (w *Worker) panicError(a *attempt, v any) error {
	stack := debug.Stack()
	w.logAttempt(slog.LevelError, "handler panicked", a, slog.String("panic", fmt.Sprint(v)),
		slog.String("stack", job.Clip(string(stack), maxLoggedStack)))
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	var at []string
	inHandler := false
	for len(at) < maxFrames {
		f, more := frames.Next()
		switch {
		case !inHandler:
			inHandler = f.Function == "runtime.gopanic"
		case strings.HasSuffix(f.Function, ".(*Worker).callHandler"):
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

// reportedOutcome returns the outcome to report and its metric label. If the lease was lost, or the worker
// stopped the handler, only the label shows it: the attempt is not a failure of the handler.
func (e handlerEnd) reportedOutcome() (outcome fermatav1.Result_Outcome, label string) {
	switch {
	case e.failure == nil:
		return fermatav1.Result_OUTCOME_SUCCEEDED, succeededOutcome
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

// buildResult returns the result of an attempt, and counts and logs it.
func (w *Worker) buildResult(a *attempt, e handlerEnd) result {
	outcome, label := e.reportedOutcome()
	w.metrics.countAttempt(a.handler, label, e.took)
	if w.isTraced(a) {
		endSpan(a, label, e)
	}
	r := result{outcome: outcome, output: a.task.Output(), took: e.took}
	if e.failure == nil {
		return r
	}
	r.text, r.retryAfter = e.failure.text, e.failure.retryAfter
	w.logAttempt(slog.LevelInfo, "attempt failed", a, slog.String("outcome", label), slog.String("error", r.text))
	return r
}

// errorText returns a text that is never empty and fits in a stored error.
func errorText(err error) string {
	if text := job.Clip(err.Error(), job.MaxError); text != "" {
		return text
	}
	return fmt.Sprintf("%T", err)
}
