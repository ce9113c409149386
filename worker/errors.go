package worker

import (
	"errors"
	"time"
)

// Causes of the end of a handler's context, for [context.Cause].
var (
	// ErrTimeout: the attempt's timeout has passed.
	ErrTimeout = errors.New("the attempt's timeout has passed")
	// ErrCancelled: somebody cancelled the run.
	ErrCancelled = errors.New("the run was cancelled")
	// ErrLeaseLost: the attempt is no longer this worker's; another worker may
	// run the next one already. Stop writing.
	ErrLeaseLost = errors.New("the lease is lost")
	// ErrStopped: the worker stops and does not wait any longer.
	ErrStopped = errors.New("the worker stops")
)

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks an error that retrying will not cure: the run ends without
// further attempts. It is transparent to [errors.Is] and [errors.As]. Permanent(nil)
// is nil.
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

// RetryAfter is the hint.
func (e *retryAfterError) RetryAfter() time.Duration { return e.after }

// RetryAfter marks an error whose next attempt, or run, should start no earlier
// than d from now, in place of the computed delay and inside the bounds of the
// job's policy. A d that is not positive asks for nothing. It is transparent to
// [errors.Is] and [errors.As]. RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, max(0, d)}
}

// IsPermanent tells whether an error, or one that it wraps, was marked by [Permanent].
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

func retryAfterOf(err error) time.Duration {
	var hint interface{ RetryAfter() time.Duration }
	if errors.As(err, &hint) {
		return hint.RetryAfter()
	}
	return 0
}
