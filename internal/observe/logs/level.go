package logs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/lib/timespan"
)

// maxBodySize bounds a request, in bytes.
const maxBodySize = 4096

// Level is the level of a process's logger. It serves GET and PUT of a [State], to callers on this host only,
// because there is no authentication. It is safe for concurrent use.
type Level struct {
	current slog.LevelVar
	initial slog.Level
	logger  *slog.Logger

	mu        sync.Mutex
	revert    *time.Timer // nil: the level stays
	changes   int         // number of changes so far
	revertsAt time.Time
}

// State is the JSON form of a level.
type State struct {
	// Level is debug, info, warn or error.
	Level string `json:"level"`
	// For is how long the level lasts, as "10m"; then the level at the start of the process returns. Empty:
	// until the next change. Only in requests.
	For string `json:"for,omitempty"`
	// Until is the end of that time. Only in responses.
	Until *time.Time `json:"until,omitempty"`
}

func newLevel(l slog.Level) *Level {
	level := &Level{initial: l}
	level.current.Set(l)
	return level
}

// Level is the current level.
func (l *Level) Level() slog.Level { return l.current.Level() }

// Set changes the level, for a time after which the initial level returns; 0: until the next change.
func (l *Level) Set(to slog.Level, lasting time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	if l.revert != nil {
		l.revert.Stop()
		l.revert, l.revertsAt = nil, time.Time{}
	}
	if lasting > 0 {
		l.revertsAt = time.Now().Add(lasting)
		set := l.changes
		l.revert = time.AfterFunc(lasting, func() { l.revertLevel(set) })
	}
	l.setLevel(to, lasting)
}

// revertLevel restores the initial level, unless the level was changed since.
func (l *Level) revertLevel(set int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes == set {
		l.revert, l.revertsAt = nil, time.Time{}
		l.setLevel(l.initial, 0)
	}
}

// setLevel logs the change at a level that is enabled before and after.
func (l *Level) setLevel(to slog.Level, lasting time.Duration) {
	from := l.current.Level()
	l.current.Set(min(from, to))
	if from != to {
		l.logger.Log(context.Background(), max(min(from, to), slog.LevelInfo), "log level changed", "from",
			levelName(from), "to", levelName(to), "lasting", lasting)
	}
	l.current.Set(to)
}

func (l *Level) currentState() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := State{Level: levelName(l.Level())}
	if !l.revertsAt.IsZero() {
		until := l.revertsAt.UTC()
		s.Until = &until
	}
	return s
}

// ServeHTTP responds with the level, after PUT has set it.
func (l *Level) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if !isFromThisHost(q) {
		http.Error(w, "the log level is for callers on this host, by a loopback address", http.StatusForbidden)
		return
	}
	switch q.Method {
	case http.MethodGet:
	case http.MethodPut:
		if err := l.applyRequest(http.MaxBytesReader(w, q.Body, maxBodySize)); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	default:
		w.Header().Set("Allow", "GET, PUT")
		http.Error(w, "want GET or PUT", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(l.currentState()) // the caller may have disconnected
}

func (l *Level) applyRequest(body io.Reader) error {
	var s State
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return fmt.Errorf(`want {"level": "debug", "for": "10m"}: %w`, err)
	}
	to, err := parseLevel(s.Level)
	if err != nil {
		return err
	}
	var lasting time.Duration
	if s.For != "" {
		lasting, err = timespan.Parse(s.For)
		if err != nil || lasting <= 0 {
			return fmt.Errorf(`for %q: want a time such as "10m"`, s.For)
		}
	}
	l.Set(to, lasting)
	return nil
}

// isFromThisHost reports whether a request comes from this host and names this host. A web page could make a
// browser on this host call any address under a host name of its own.
func isFromThisHost(q *http.Request) bool {
	peer, _, err := net.SplitHostPort(q.RemoteAddr)
	if err != nil || !isLoopback(peer) {
		return false
	}
	host := q.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	} else if inner, ok := strings.CutPrefix(host, "["); ok && strings.HasSuffix(inner, "]") {
		return isLoopback(inner[:len(inner)-1]) // an address of IPv6 without a port
	}
	return host == "localhost" || isLoopback(host)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
