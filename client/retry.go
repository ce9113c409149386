package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	mathrand "math/rand/v2"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Delays between attempts if the cluster requests none.
const (
	firstRetryDelay = 100 * time.Millisecond
	maxRetryDelay   = 2 * time.Second
	// maxRequestedDelay bounds the delay that the cluster requests.
	maxRequestedDelay = 10 * time.Second
)

// rpcCall is a method of a generated stub.
type rpcCall[Q, A any] func(context.Context, Q, ...grpc.CallOption) (A, error)

// callWithRetry calls a method until it succeeds or returns a permanent error.
func callWithRetry[Q, A any](ctx context.Context, c *Client, method rpcCall[Q, A], q Q) (A, error) {
	var answer A
	err := c.retryCall(ctx, func(int) (err error) {
		answer, err = method(ctx, q)
		return err
	})
	return answer, err
}

// retryCall calls try up to Options.Attempts times and returns the last error.
func (c *Client) retryCall(ctx context.Context, try func(attempt int) error) error {
	for attempt := 1; ; attempt++ {
		err := try(attempt)
		if err == nil {
			return nil
		}
		wait, worthwhile := delayAfter(err, attempt)
		if !worthwhile || attempt >= c.options.Attempts || !waitFor(ctx, wait) {
			return wrapError(err)
		}
	}
}

// delayAfter returns whether to retry after an error, and after which delay. Aborted calls are retried only if
// the cluster returns a delay: otherwise the caller must look at a concurrent change first.
func delayAfter(err error, attempt int) (time.Duration, bool) {
	asked, named := requestedDelay(err)
	switch code := status.Code(err); {
	case code == codes.Unavailable && !named:
		wait := min(firstRetryDelay<<min(attempt-1, 10), maxRetryDelay)
		return wait/2 + mathrand.N(wait/2+1), true
	case code == codes.Unavailable || named && (code == codes.Aborted || code == codes.ResourceExhausted):
		wait := min(asked, maxRequestedDelay)
		return wait + mathrand.N(wait/4+1), true
	}
	return 0, false
}

func requestedDelay(err error) (time.Duration, bool) {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return max(0, info.GetRetryDelay().AsDuration()), true
		}
	}
	return 0, false
}

// waitFor waits for d. It returns false at once when the context ends, or if it would end before.
func waitFor(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// NewRequestID returns a random UUID (version 4), for [RunOptions].RequestID and [Backfill].ID.
func NewRequestID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	var text [36]byte
	hex.Encode(text[:8], b[:4])
	hex.Encode(text[9:13], b[4:6])
	hex.Encode(text[14:18], b[6:8])
	hex.Encode(text[19:23], b[8:10])
	hex.Encode(text[24:], b[10:])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}
