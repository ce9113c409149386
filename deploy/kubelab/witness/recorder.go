package main

import (
	"fmt"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
)

// recorder keeps the evidence, in the order in which it came.
type recorder struct {
	mu     sync.Mutex
	events []historycheck.Event
}

func (r *recorder) add(e historycheck.Event) {
	e.AtNS = time.Now().UnixNano()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// seen is the evidence so far.
func (r *recorder) seen() []historycheck.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// ServeHTTP is the work of the jobs: it takes ?sleep and fails with ?fail. If the connection of an attempt ends
// meanwhile, the attempt was cancelled or its worker is gone.
func (r *recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	e, err := describe(q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	sleep, _ := time.ParseDuration(q.URL.Query().Get("sleep")) // none is 0
	e.Kind = historycheck.Start
	r.add(e)
	done := time.NewTimer(sleep)
	defer done.Stop()
	select {
	case <-done.C:
	case <-q.Context().Done():
		e.Kind = historycheck.ContextCancelled
		r.add(e)
		e.Kind, e.Outcome = historycheck.End, historycheck.Cancelled
		r.add(e)
		return
	}
	e.Kind, e.Outcome = historycheck.End, historycheck.OK
	status := http.StatusOK
	if q.URL.Query().Has("fail") {
		e.Outcome, status = historycheck.Failed, http.StatusInternalServerError
	}
	r.add(e)
	w.WriteHeader(status)
}

// describe reads the headers of the handler http about the attempt.
func describe(q *http.Request) (e historycheck.Event, err error) {
	h := q.Header
	e.Run = h.Get("Fermata-Run")
	// namespaces/{n}/jobs/{j}/runs/{r}
	parts := strings.Split(e.Run, "/")
	if len(parts) != 6 {
		return e, fmt.Errorf("Fermata-Run is %q", e.Run)
	}
	e.Job, e.Run = parts[3], path.Join(parts[3], parts[5])
	if e.Attempt, err = strconv.Atoi(h.Get("Fermata-Attempt")); err != nil {
		return e, fmt.Errorf("Fermata-Attempt: %w", err)
	}
	if e.Token, err = strconv.ParseInt(h.Get("Fermata-Token"), 10, 64); err != nil {
		return e, fmt.Errorf("Fermata-Token: %w", err)
	}
	for name, into := range map[string]*int64{"Fermata-Nominal-Time": &e.NominalMS, "Fermata-Due-Time": &e.DueMS} {
		at, err := time.Parse(time.RFC3339Nano, h.Get(name))
		if err != nil {
			return e, fmt.Errorf("%s: %w", name, err)
		}
		*into = at.UnixMilli()
	}
	e.Worker, _, err = net.SplitHostPort(q.RemoteAddr)
	return e, err
}
