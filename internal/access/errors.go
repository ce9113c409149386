package access

import "errors"

// Errors of authentication. What wraps them says why, for the log of the node;
// callers are told only that.
var (
	// ErrUnauthenticated: the credential is missing, unknown, forged or expired.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrUnavailable: whether the credential is good cannot be told now.
	ErrUnavailable = errors.New("authentication is not possible now")
)
