package rpc

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc/tap"
)

// Bounds of what is read before callers have proved who they are: gRPC takes a whole
// request in before anything of ours sees it, and would do so for each of 250 streams
// of any number of connections.
const (
	// unprovedBytes of one connection hold a largest request, and its frames.
	unprovedBytes = maxRequest + 1<<20
	// allUnprovedBytes are those of all connections of a node together.
	allUnprovedBytes = 256 << 20
)

// errUnproved ends a connection that has sent too much before its first credential was
// accepted.
var errUnproved = errors.New("too much was sent before the caller was known")

// unproved counts what connections have sent of which no caller is known yet.
type unproved struct {
	closed func(host string) // hears of each connection that is ended for it
	mu     sync.Mutex
	used   int
}

// flooded counts and tells of a connection that was closed for what it sent.
func (g *gate) flooded(host string) {
	g.denied.WithLabelValues("none", "unproved").Inc()
	if g.loud.Allow() {
		g.logger.Warn("connection closed", "peer", host, "error", errUnproved)
	}
}

// take adds to what a connection has sent; false if that is too much.
func (u *unproved) take(sent *int, n int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if *sent+n > unprovedBytes || u.used+n > allUnprovedBytes {
		return false
	}
	*sent, u.used = *sent+n, u.used+n
	return true
}

// give returns what a connection has taken.
func (u *unproved) give(sent *int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used -= *sent
	*sent = 0
}

// tap refuses calls without any credential when their headers have come: what would
// follow is not read. It must not wait; whether a credential is good is for [gate.enter]
// to say.
func (g *gate) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if g.authority == nil || demands[info.FullMethodName].open || len(info.Header.Get("authorization")) > 0 {
		return ctx, nil
	}
	if conn := connectionOf(ctx); conn != nil && conn.certificate() != nil {
		return ctx, nil
	}
	c := &caller{gate: g, method: info.FullMethodName}
	if _, known := demands[info.FullMethodName]; !known {
		c.method = "unknown"
	}
	return ctx, c.unauthenticated(ctx, "missing", errors.New("there is neither a token nor a verified certificate"))
}
