package httpbound

import (
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Reasons why a connection is closed for want of room.
const (
	// Evicted makes room for a connection of another host, or for a new one of the same host.
	Evicted = "evicted"
	// HostFull is a new connection of a host that has as many as it may have.
	HostFull = "host"
	// Full is a new connection while all places are taken, and those that have them keep them.
	Full = "total"
	// Headers is a connection without memory for its long headers.
	Headers = "headers"
)

// Reasons are all values that Options.OnClose gets.
func Reasons() []string { return []string{Evicted, HostFull, Full, Headers} }

// LogPanics has panics of a handler logged. The server then ends the request as it does after each panic.
func LogPanics(next http.Handler, logger *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p != http.ErrAbortHandler {
				LogPanic(logger, r, p)
			}
			panic(http.ErrAbortHandler)
		}()
		next.ServeHTTP(w, r)
	})
}

// LogPanic logs a panic that was recovered in the handler of a request.
func LogPanic(logger *slog.Logger, r *http.Request, p any) {
	logger.Error("panic in an HTTP handler", "method", r.Method, "path", r.URL.Path, "panic", p,
		"stack", string(debug.Stack()))
}

// warningInterval is the time between two warnings of a kind.
const warningInterval = time.Minute

// warnings logs few warnings of one kind, because strangers can cause any number of them.
type warnings struct {
	logger *slog.Logger
	next   atomic.Int64 // the [instant] from which on another one is logged
}

func (w *warnings) log(text string, args ...any) {
	next, now := w.next.Load(), instant()
	if now >= next && w.next.CompareAndSwap(next, now+int64(warningInterval)) {
		w.logger.Warn(text, args...)
	}
}
