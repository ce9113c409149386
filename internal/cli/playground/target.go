package playground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/lib/httpbound"
)

// targetMode is how the target answers.
type targetMode string

const (
	scripted targetMode = "each path behaves as its name describes"
	broken   targetMode = "every path answers 503"
	healed   targetMode = "every path answers 200"
)

const (
	slowTakes     = 3 * time.Second
	limitedWindow = 10 * time.Second // one request a window
)

// targetBehaviour is what the target's paths do. It is an http.Handler.
type targetBehaviour struct {
	now func() time.Time

	mu       sync.Mutex
	mode     targetMode
	flaky    int       // requests of /flaky so far
	window   time.Time // end of the window of /limited
	onChange func(targetMode)
}

func newBehaviour(now func() time.Time, onChange func(targetMode)) *targetBehaviour {
	return &targetBehaviour{now: now, mode: scripted, onChange: onChange}
}

func (b *targetBehaviour) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m, ok := map[string]targetMode{"/fail": broken, "/heal": healed, "/reset": scripted}[r.URL.Path]; ok {
		b.setMode(w, r, m)
		return
	}
	status, retryAfter, text := b.responseFor(r.URL.Path)
	if r.URL.Path == "/slow" && status == http.StatusOK && !waitFor(r.Context(), slowTakes) {
		return // the caller has gone
	}
	if retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((retryAfter+time.Second-1)/time.Second)))
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // a caller that has gone needs no answer
}

// setMode switches the target, for everybody.
func (b *targetBehaviour) setMode(w http.ResponseWriter, r *http.Request, m targetMode) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "use POST", http.StatusMethodNotAllowed)
		return
	}
	b.mu.Lock()
	changed := b.mode != m
	b.mode = m
	b.mu.Unlock()
	if changed {
		b.onChange(m)
	}
	fmt.Fprintln(w, m)
}

// currentMode is what the target does now.
func (b *targetBehaviour) currentMode() targetMode {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mode
}

func (b *targetBehaviour) responseFor(path string) (status int, retryAfter time.Duration, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.mode == broken:
		return http.StatusServiceUnavailable, 0, "failing on command"
	case b.mode == healed:
		return http.StatusOK, 0, "healed on command"
	}
	switch path {
	case "/ok", "/slow":
		return http.StatusOK, 0, "fine"
	case "/down":
		return http.StatusServiceUnavailable, 0, "down for good"
	case "/flaky":
		b.flaky++
		if n := b.flaky % 5; n == 2 || n == 3 {
			return http.StatusInternalServerError, 0, "a bad moment"
		}
		return http.StatusOK, 0, "a good moment"
	case "/limited":
		now := b.now()
		if left := b.window.Sub(now); left > 0 {
			return http.StatusTooManyRequests, left, "one request in ten seconds, please"
		}
		b.window = now.Add(limitedWindow)
		return http.StatusOK, 0, "within the limit"
	}
	return http.StatusNotFound, 0, "paths: /ok /flaky /down /slow /limited; POST /fail /heal /reset"
}

// waitFor waits and reports whether the time has passed before ctx ended.
func waitFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// target serves a behaviour on a free local port.
type target struct {
	*targetBehaviour
	server   *http.Server
	listener net.Listener
	done     chan error
}

func startTarget(onChange func(targetMode), logger *slog.Logger) (*target, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the target: %w", err)
	}
	b := newBehaviour(time.Now, onChange)
	t := &target{
		targetBehaviour: b, listener: l, done: make(chan error, 1),
		server: &http.Server{Handler: httpbound.LogPanics(b, logger), ReadHeaderTimeout: 5 * time.Second},
	}
	go func() { t.done <- t.server.Serve(l) }()
	return t, nil
}

func (t *target) targetURL() string { return "http://" + t.listener.Addr().String() }

func (t *target) stopServer() error {
	err := t.server.Close()
	if served := <-t.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
