package faultyworker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Causes of the end of a handler's context.
var (
	errTimeout   = errors.New("timed out")
	errCancelled = errors.New("cancelled")
	errLost      = errors.New("the lease is lost")
	errStopped   = errors.New("the worker stops")
)

// permanentError and delayError are what handlers ask for.
type permanentError struct{ error }

type delayError struct {
	error
	delay time.Duration
}

// call runs a handler, with its lines in the journal.
func (w *worker) call(ctx context.Context, l *fermatav1.Lease) (output []byte, err error) {
	known := strings.HasPrefix(l.GetHandler(), "check.") && l.GetHandler() != "check.missing"
	if !known {
		return nil, fmt.Errorf("no handler %q", l.GetHandler())
	}
	w.writeJournal("start", l)
	defer w.writeJournal("end", l)
	defer func() {
		if v := recover(); v != nil {
			if w.has("dies-of-panic") {
				os.Exit(2)
			}
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	payload := string(l.GetPayload())
	number, _ := strconv.Atoi(payload)
	switch l.GetHandler() {
	case "check.succeed":
		return w.passOn(l.GetPayload()), nil
	case "check.fail":
		return nil, errors.New(payload)
	case "check.permanent":
		return nil, permanentError{errors.New(payload)}
	case "check.retry_after":
		return nil, delayError{errors.New("busy"), time.Duration(number) * time.Millisecond}
	case "check.panic":
		panic("as the check wants")
	}
	select {
	case <-time.After(time.Duration(number) * time.Millisecond):
		return []byte("slept"), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (w *worker) passOn(payload []byte) []byte {
	switch {
	case w.has("text-payloads"):
		return []byte(strings.ToValidUTF8(string(payload), "?"))
	case w.has("trims-output"):
		return []byte(strings.TrimSpace(string(payload)))
	}
	return payload
}

func (w *worker) writeJournal(word string, l *fermatav1.Lease) {
	file, err := os.OpenFile(os.Getenv("FERMATA_CHECK_JOURNAL"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	fmt.Fprintf(file, "%s %d\n", word, l.GetToken())
}

// newResult makes the result of a handler. cause is why its context has ended; nil: it has not.
func (w *worker) newResult(id string, output []byte, err, cause error) *fermatav1.Result {
	r := &fermatav1.Result{LeaseId: id, Outcome: fermatav1.Result_OUTCOME_SUCCEEDED, Output: output}
	if err == nil {
		return r
	}
	r.Outcome, r.Error = fermatav1.Result_OUTCOME_FAILED, err.Error()
	var permanent permanentError
	var delay delayError
	switch {
	case errors.As(err, &permanent) && !w.has("permanent-as-failure"):
		r.Outcome = fermatav1.Result_OUTCOME_FAILED_PERMANENTLY
	case errors.As(err, &delay):
		r.RetryAfter = w.retryAfter(delay.delay)
	case errors.Is(cause, errTimeout) && !w.has("timeout-as-failure"):
		r.Outcome = fermatav1.Result_OUTCOME_TIMED_OUT
	case errors.Is(cause, errCancelled) && !w.has("cancel-as-failure"):
		r.Outcome = fermatav1.Result_OUTCOME_CANCELLED
	}
	if w.has("errors-without-text") {
		r.Error = "handler failed"
	}
	return r
}

func (w *worker) retryAfter(d time.Duration) *durationpb.Duration {
	switch {
	case w.has("no-retry-after"):
		return nil
	case w.has("retry-after-in-seconds"):
		return durationpb.New(d.Truncate(time.Second))
	}
	return durationpb.New(d)
}
