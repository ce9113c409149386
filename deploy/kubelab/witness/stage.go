package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/test/historycheck"
)

const (
	// calmLag is what a due job may wait at any time on a busy machine.
	calmLag = 2 * time.Second
	// slack is added to what is documented, for the same reason.
	slack = time.Second
	// patience is how long beyond what is documented the witness waits for calm
	// before it gives up; the wait fails the trial by its length all the same.
	patience = 2 * time.Minute
	look     = 100 * time.Millisecond
)

// witness is the trial's memory.
type witness struct {
	load     load
	recorder recorder
	pulse    stallWatch
	lease    time.Duration

	mu     sync.Mutex // one question at a time
	act    *act       // under way
	faults []historycheck.Fault
	adding context.CancelFunc
	added  chan struct{}
}

// act is one disturbance. Done is when the hand that did it was withdrawn.
type act struct {
	name         string
	within       time.Duration
	costly       bool     // not planned
	costs        []string // workers that may lose leases or results
	mayFail      bool     // calls of clients
	fromNS, toNS int64
}

func newWitness(c *client.Client, target string, lease time.Duration) *witness {
	return &witness{load: load{c: c, target: target}, lease: lease}
}

func (w *witness) evidence() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /run", &w.recorder)
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// stagehand answers who runs the trial.
func (w *witness) stagehand(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	for path, do := range map[string]func(context.Context, url.Values) (string, error){
		"/register": w.register, "/begin": w.begin, "/done": w.done, "/end": w.end, "/judge": w.judge,
	} {
		mux.HandleFunc("POST "+path, func(out http.ResponseWriter, q *http.Request) {
			w.mu.Lock()
			defer w.mu.Unlock()
			said, err := do(ctx, q.URL.Query())
			if err != nil {
				out.WriteHeader(http.StatusConflict)
				said = strings.TrimPrefix(said+"\n"+err.Error(), "\n")
			}
			fmt.Fprintln(out, said)
		})
	}
	return mux
}

// register: ?jobs=N. It returns when each of them has run, and newcomers come in.
func (w *witness) register(ctx context.Context, q url.Values) (string, error) {
	n, err := strconv.Atoi(q.Get("jobs"))
	if err != nil || n < 1 || w.adding != nil {
		return "", errors.New("register?jobs=N, once")
	}
	if err := w.load.register(ctx, n); err != nil {
		return "", err
	}
	adding, stop := context.WithCancel(ctx)
	w.adding, w.added = stop, make(chan struct{})
	go func() {
		defer close(w.added)
		w.load.keepAdding(adding)
	}()
	if err := w.until(ctx, wait+5*time.Second+patience, w.everyJobRan); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d jobs of 1 to 5 s, and one new one every %v", n, newcomerEvery), nil
}

// begin announces a disturbance: ?name=X&within=D, where within is the documented time after which work continues.
// &costs=IP,IP names the workers that may lose leases or results, none for no worker; without costs the disturbance
// is planned and costs no time either. &calls=may-fail allows calls of clients to fail.
func (w *witness) begin(_ context.Context, q url.Values) (string, error) {
	within, err := time.ParseDuration(q.Get("within"))
	if err != nil || w.act != nil {
		return "", errors.Join(errors.New("begin?name=X&within=D, one at a time"), err)
	}
	a := &act{name: q.Get("name"), within: within, mayFail: q.Get("calls") == "may-fail", fromNS: time.Now().UnixNano()}
	switch costs := q.Get("costs"); costs {
	case "":
	case "none":
		a.costly, a.costs = true, []string{}
	default:
		a.costly, a.costs = true, strings.Split(costs, ",")
	}
	w.act = a
	return "", nil
}

// done ends the disturbance itself; the rest is recovery.
func (w *witness) done(context.Context, url.Values) (string, error) {
	if w.act == nil || w.act.toNS != 0 {
		return "", errors.New("nothing is under way")
	}
	w.act.toNS = time.Now().UnixNano()
	return "", nil
}

// end waits until all jobs are on time, and reports the longest wait of a job since the disturbance began. It fails if
// that is longer than documented.
func (w *witness) end(ctx context.Context, _ url.Values) (string, error) {
	a := w.act
	if a == nil {
		return "", errors.New("nothing is under way")
	}
	w.act = nil
	a.toNS = cmp.Or(a.toNS, time.Now().UnixNano())
	bound := max(calmLag, a.within)
	if a.costly { // for as long as it is being done, and what follows
		hold := a.within - calmLag
		w.faults = append(w.faults, historycheck.Fault{
			Name: a.name, FromNS: a.fromNS, ToNS: a.toNS, Hold: max(0, hold), Workers: a.costs,
		})
		bound = a.within + time.Duration(a.toNS-a.fromNS)
	}
	calm := w.until(ctx, bound+patience, w.onTime)
	now := time.Now().UnixNano()
	gap, of := w.gap(a.fromNS, now)
	stalls := w.pulse.since(a.fromNS)
	made, failed, longest, last := w.load.clients(a.fromNS)
	said := fmt.Sprintf("longest wait %v of %v", gap.Round(10*time.Millisecond), bound.Round(10*time.Millisecond))
	said += fmt.Sprintf("; %d calls, longest %v", made, longest.Round(10*time.Millisecond))
	if failed > 0 {
		said += fmt.Sprintf(", %d failed (%v)", failed, last)
	}
	if stalls > 0 {
		said += fmt.Sprintf("; machine stalled %v", stalls.Round(10*time.Millisecond))
	}
	switch {
	case calm != nil:
		return said, calm
	case gap > bound+stalls+slack:
		return said, fmt.Errorf("%s waited for too long", of)
	case failed > 0 && !a.mayFail:
		return said, errors.New("no call was to fail")
	}
	return said, nil
}

// until waits for a condition of the evidence.
func (w *witness) until(ctx context.Context, limit time.Duration, holds func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		err := holds()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", limit, err)
		}
	}
}

// starts are those of the jobs that keep an interval, in order, and the intervals.
func (w *witness) starts() (map[string][]int64, map[string]time.Duration) {
	every := map[string]time.Duration{}
	for _, p := range w.load.promised() {
		if p.Every > 0 && p.Every < time.Hour {
			every[p.Job] = p.Every
		}
	}
	starts := map[string][]int64{}
	for _, e := range w.recorder.seen() {
		if e.Kind == historycheck.Start && every[e.Job] > 0 {
			starts[e.Job] = append(starts[e.Job], e.AtNS)
		}
	}
	return starts, every
}

func (w *witness) everyJobRan() error {
	if starts, every := w.starts(); len(starts) < len(every) {
		return fmt.Errorf("%d of %d jobs have run", len(starts), len(every))
	}
	return nil
}

func (w *witness) onTime() error {
	now := time.Now().UnixNano()
	starts, every := w.starts()
	late, one := 0, ""
	for job, interval := range every {
		last := int64(0)
		if all := starts[job]; len(all) > 0 {
			last = all[len(all)-1]
		}
		if now-last > int64(interval+calmLag) {
			late, one = late+1, job
		}
	}
	if late > 0 {
		return fmt.Errorf("%d jobs are late, %s is one", late, one)
	}
	return nil
}

// gap is the longest that any job waited for a start, beyond its interval, in a
// stretch of time, with that job.
func (w *witness) gap(fromNS, toNS int64) (longest time.Duration, of string) {
	starts, every := w.starts()
	for job, all := range starts {
		for i, at := range all {
			next := toNS
			if i+1 < len(all) {
				next = min(all[i+1], toNS)
			}
			if next <= fromNS || at >= toNS {
				continue
			}
			if wait := time.Duration(next-at) - every[job]; wait > longest {
				longest, of = wait, job
			}
		}
	}
	return longest, of
}

func (l *load) promised() []historycheck.ExpectedSchedule {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]historycheck.ExpectedSchedule{}, l.promises...)
}
