package worker

import (
	"errors"
	"time"
)

// Causes of the end of a handler's context, returned by [context.Cause].
var (
	// ErrTimeout: the attempt's timeout has passed.
	ErrTimeout = errors.New("the attempt's timeout has passed")
	// ErrCancelled: the run was cancelled.
	ErrCancelled = errors.New("the run was cancelled")
	// ErrLeaseLost: this worker no longer has the attempt's lease, and another worker may run the next attempt
	// already. Stop writing.
	ErrLeaseLost = errors.New("the lease is lost")
	// ErrStopped: the worker stops and has waited for DrainTimeout, or Abort was called.
	ErrStopped = errors.New("the worker stops")
)

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks an error that a retry will not fix: the run ends without further attempts. [errors.Is] and
// [errors.As] see the wrapped error. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type retryAfterError struct {
	err   error
	after time.Duration
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// RetryAfter returns the requested delay.
func (e *retryAfterError) RetryAfter() time.Duration { return e.after }

// RetryAfter marks an error whose next attempt, or next run, should start no earlier than d from now. The delay
// replaces the computed one, within the bounds of the job's policy. If d is zero or negative the computed delay
// is used. [errors.Is] and [errors.As] see the wrapped error. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, max(0, d)}
}

// IsPermanent reports whether an error, or one that it wraps, was marked by [Permanent].
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

func retryAfterHint(err error) time.Duration {
	var hint interface{ RetryAfter() time.Duration }
	if errors.As(err, &hint) {
		return hint.RetryAfter()
	}
	return 0
}
