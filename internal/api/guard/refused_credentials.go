package guard

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// Refused credentials cost a check each. A connection that has never proved an identity is closed after a few. One that
// has may carry calls of many clients, and stays open: the identity that called last on it may have so many credentials
// refused, over all its connections to the node.
const (
	refusalsPerSecond = 20
	refusalBurst      = 100
)

func newRefusalLimiter() *rate.Limiter { return rate.NewLimiter(refusalsPerSecond, refusalBurst) }

// lastQuota is the quota of the identity that called last on the connection, if it has proved one with a role.
func (c *connection) lastQuota() *quota {
	if !c.isAuthenticated() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quota
}

// checkRefusals refuses a credential unchecked if too many were refused before.
func (c *Caller) checkRefusals(ctx context.Context, q *quota) error {
	if q == nil || q.refusals.Tokens() >= 1 {
		return nil
	}
	return c.refuseOverLimit(ctx, "credentials", time.Second)
}

// countRefused counts a refused credential, also against the rate of the identity.
func (q *quota) countRefused() {
	if q == nil {
		return
	}
	q.refusals.Allow()
	if q.limited.Load() {
		q.bucket.Allow()
	}
}
