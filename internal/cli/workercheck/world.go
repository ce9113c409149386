package workercheck

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Fault is a violation of a rule.
type Fault struct {
	Rule Rule
	Text string
}

// errCaseEnds unwinds a case that need not go on: it has a fault, or it is left out.
type errCaseEnds struct{}

// trial is one execution of a case: its scripted nodes, its worker process, and what was seen of them. Everything below
// mu is guarded by it. Whoever changes something there calls noteChange.
type trial struct {
	options Options
	scale   float64
	dir     string
	ctx     context.Context

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced with each change
	faults   []Fault
	leftOut  string // why the case does not apply to this worker
	nodes    []*scriptedNode
	sessions []*session // in the order of their Hellos
	leases   map[string]*leaseRecord
	byToken  map[int64]*leaseRecord
	process  *process
	slots    int
	running  int // handlers, by the journal
	begun    int // handlers that have started
	journal  *journalReader
	settings map[string]string // environment of the worker
	// mayExit: the end of the process is no fault.
	mayExit  bool
	workerID string
	epoch    int32
	cleanups []func()
}

// leaseRecord is one lease and what became of it.
type leaseRecord struct {
	id      string
	lease   *fermatav1.Lease
	sentAt  time.Time
	starts  []time.Time // by the journal
	place   int         // of its latest start among all starts
	ends    []time.Time
	results []receivedResult
	started []*session // that received Started
	// returned and lost are the sessions that received such a report.
	returned, lost []*session
}

// receivedResult is a result, and where and when it arrived.
type receivedResult struct {
	*fermatav1.Result
	on *session
	at time.Time
}

func newTrial(ctx context.Context, o Options, scale float64) (*trial, error) {
	dir, err := os.MkdirTemp("", "fermata-worker-check-")
	if err != nil {
		return nil, err
	}
	t := &trial{
		options: o, scale: scale, dir: dir, ctx: ctx, changed: make(chan struct{}), slots: 4,
		leases: map[string]*leaseRecord{}, byToken: map[int64]*leaseRecord{}, settings: map[string]string{},
	}
	t.onEnd(func() { os.RemoveAll(dir) })
	if t.journal, err = t.openJournal(filepath.Join(dir, "journal")); err != nil {
		t.end()
		return nil, err
	}
	return t, nil
}

func (t *trial) onEnd(do func()) { t.cleanups = append(t.cleanups, do) }

// end releases everything, in the reverse order.
func (t *trial) end() {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
	t.cleanups = nil
}

// ms returns so many milliseconds at the scale of this trial.
func (t *trial) ms(n int) time.Duration {
	return time.Duration(float64(n) * t.scale * float64(time.Millisecond))
}

// soon is the limit of what a worker does at once. It is generous: machines may be busy.
func (t *trial) soon() time.Duration { return t.ms(6000) }

// slack is how much later than promised the end of a handler may be seen.
func (t *trial) slack() time.Duration { return t.ms(300) }

func (t *trial) noteChange() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// addFault records a fault. The case ends at its next wait.
func (t *trial) addFault(rule Rule, format string, args ...any) {
	t.faults = append(t.faults, Fault{rule, fmt.Sprintf(format, args...)})
	t.noteChange()
}

// fail records a fault and ends the case.
func (t *trial) fail(rule Rule, format string, args ...any) {
	t.mu.Lock()
	t.addFault(rule, format, args...)
	t.mu.Unlock()
	panic(errCaseEnds{})
}

// leaveOut ends the case: it does not apply to this worker.
func (t *trial) leaveOut(why string) {
	t.mu.Lock()
	t.leftOut = why
	t.mu.Unlock()
	panic(errCaseEnds{})
}

// await waits up to limit until done, which is called under the mutex. It ends the case after a fault.
func (t *trial) await(limit time.Duration, done func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for late := false; ; {
		t.mu.Lock()
		ok, changed := done(), t.changed
		faulty := len(t.faults) > 0
		if !ok && !faulty && !t.mayExit && t.process != nil && t.process.exited {
			t.addFault(ruleProgram, "the worker has exited: %s", t.process.status)
			faulty = true
		}
		t.mu.Unlock()
		switch {
		case faulty:
			panic(errCaseEnds{})
		case ok || late:
			return ok
		}
		select {
		case <-changed:
		case <-timer.C:
			late = true
		case <-t.ctx.Done():
			panic(errCaseEnds{})
		}
	}
}

// expect waits for what has to come soon. It fails the case otherwise.
func (t *trial) expect(rule Rule, what string, done func() bool) {
	t.expectWithin(t.soon(), rule, what, done)
}

func (t *trial) expectWithin(limit time.Duration, rule Rule, what string, done func() bool) {
	if !t.await(limit, done) {
		hint := readLocked(t, func() string { return t.process.execHint() })
		t.fail(rule, "%s, which did not come within %v%s", what, limit.Round(time.Millisecond), hint)
	}
}

// expectNever watches for a time. It fails the case if it happens.
func (t *trial) expectNever(during time.Duration, rule Rule, what string, happens func() bool) {
	if t.await(during, happens) {
		t.fail(rule, "%s", what)
	}
}

// pause lets time pass.
func (t *trial) pause(d time.Duration) { t.await(d, func() bool { return false }) }

// check fails the case unless ok, which is called under the mutex.
func (t *trial) check(rule Rule, what string, ok func() bool) {
	t.mu.Lock()
	fine := ok()
	t.mu.Unlock()
	if !fine {
		t.fail(rule, "%s", what)
	}
}

// readLocked returns what get returns, which is called under the mutex.
func readLocked[T any](t *trial, get func() T) T {
	t.mu.Lock()
	defer t.mu.Unlock()
	return get()
}

// firstResult returns the first result of a lease that has one.
func (t *trial) firstResult(r *leaseRecord) receivedResult {
	return readLocked(t, func() receivedResult { return r.results[0] })
}

// ackedHeartbeat returns when the latest acknowledged heartbeat of a session was read.
func (t *trial) ackedHeartbeat(s *session) time.Time {
	return readLocked(t, func() time.Time { return s.ackedAt })
}

// newLease makes a lease that no node has sent yet.
func (t *trial) newLease(handler, payload string, change ...func(*fermatav1.Lease)) *leaseRecord {
	t.mu.Lock()
	defer t.mu.Unlock()
	token := int64(len(t.leases) + 1001)
	name := "job-" + strconv.FormatInt(token, 10)
	l := defaultLease(name, handler, []byte(payload), token)
	for _, c := range change {
		c(l)
	}
	r := &leaseRecord{id: l.GetLeaseId(), lease: l}
	t.leases[r.id], t.byToken[token] = r, r
	return r
}

// Conditions on leases, for await.

func (r *leaseRecord) isRunning() bool { return len(r.starts) > len(r.ends) }
func (r *leaseRecord) hasRun() bool    { return len(r.starts) > 0 }
func (r *leaseRecord) hasEnded() bool  { return len(r.ends) > 0 }
func (r *leaseRecord) hasResult() bool { return len(r.results) > 0 }

func (r *leaseRecord) resultOn(s *session) *fermatav1.Result {
	for _, result := range r.results {
		if result.on == s {
			return result.Result
		}
	}
	return nil
}
