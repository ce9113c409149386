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
)

// maxBody bounds a request, in bytes.
const maxBody = 4096

// Level is the level of a process's logger. It answers GET and PUT with a [State], and
// to callers on this host only: there is no authentication. It is safe for concurrent
// use.
type Level struct {
	now     slog.LevelVar
	initial slog.Level
	logger  *slog.Logger

	mu     sync.Mutex
	revert *time.Timer // nil: the level stays
	sets   int         // how often it was set
	until  time.Time
}

// State is a level as HTTP has it.
type State struct {
	// Level is debug, info, warn or error.
	Level string `json:"level"`
	// For says how long it is to last, as "10m"; then it is again as the process was
	// started with. Empty: until it is changed. Only in requests.
	For string `json:"for,omitempty"`
	// Until is the end of that time. Only in answers.
	Until *time.Time `json:"until,omitempty"`
}

func newLevel(l slog.Level) *Level {
	level := &Level{initial: l}
	level.now.Set(l)
	return level
}

// Level is the one in force.
func (l *Level) Level() slog.Level { return l.now.Level() }

// Set changes the level, for a time after which it is as it was in the beginning; 0
// is for good.
func (l *Level) Set(to slog.Level, lasting time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sets++
	if l.revert != nil {
		l.revert.Stop()
		l.revert, l.until = nil, time.Time{}
	}
	if lasting > 0 {
		l.until = time.Now().Add(lasting)
		set := l.sets
		l.revert = time.AfterFunc(lasting, func() { l.expire(set) })
	}
	l.change(to, lasting)
}

// expire ends what a level was set for, unless it has been set since.
func (l *Level) expire(set int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sets == set {
		l.revert, l.until = nil, time.Time{}
		l.change(l.initial, 0)
	}
}

// change says so at a level that is written before and after.
func (l *Level) change(to slog.Level, lasting time.Duration) {
	from := l.now.Level()
	l.now.Set(min(from, to))
	if from != to {
		l.logger.Log(context.Background(), max(min(from, to), slog.LevelInfo), "log level changed", "from", name(from), "to", name(to), "lasting", lasting)
	}
	l.now.Set(to)
}

func (l *Level) state() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := State{Level: name(l.Level())}
	if !l.until.IsZero() {
		until := l.until.UTC()
		s.Until = &until
	}
	return s
}

// ServeHTTP answers with the level, after PUT has set it.
func (l *Level) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if !fromHere(q) {
		http.Error(w, "the log level is for callers on this host, by a loopback address", http.StatusForbidden)
		return
	}
	switch q.Method {
	case http.MethodGet:
	case http.MethodPut:
		if err := l.put(http.MaxBytesReader(w, q.Body, maxBody)); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	default:
		w.Header().Set("Allow", "GET, PUT")
		http.Error(w, "want GET or PUT", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(l.state()) // who has gone needs no answer
}

func (l *Level) put(body io.Reader) error {
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
		if lasting, err = time.ParseDuration(s.For); err != nil || lasting <= 0 {
			return fmt.Errorf(`for %q: want a time such as "10m"`, s.For)
		}
	}
	l.Set(to, lasting)
	return nil
}

// fromHere tells whether a request comes from this host and means this host: a page
// in a browser here may be made to call any address by a name of its own.
func fromHere(q *http.Request) bool {
	peer, _, err := net.SplitHostPort(q.RemoteAddr)
	if err != nil || !loopback(peer) {
		return false
	}
	host := q.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	} else if inner, ok := strings.CutPrefix(host, "["); ok && strings.HasSuffix(inner, "]") {
		return loopback(inner[:len(inner)-1]) // an address of IPv6 without a port
	}
	return host == "localhost" || loopback(host)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
