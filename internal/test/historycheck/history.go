package historycheck

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// EventKind is the kind of a handler's record.
type EventKind string

// Kinds of events.
const (
	Start            EventKind = "start" // the handler begins
	ContextCancelled EventKind = "told"  // its context was cancelled while it ran
	End              EventKind = "end"   // it returns; Outcome is set
)

// Outcomes of an End.
const (
	OK        = "ok"
	Failed    = "failed"
	Cancelled = "cancelled" // it gave up because its context was cancelled
)

// Event is one line of evidence. Token is that of the lease; where Bounds.SessionTTL is set it
// is also when the lease was taken, in microseconds of Redis's clock, as all tokens of the
// scheduler are.
type Event struct {
	AtNS      int64     `json:"at"`
	Kind      EventKind `json:"kind"`
	Worker    string    `json:"worker"`
	Job       string    `json:"job"`
	Run       string    `json:"run"`
	Attempt   int       `json:"attempt"`
	Token     int64     `json:"token"`
	NominalMS int64     `json:"nominal"`
	DueMS     int64     `json:"due"`
	Outcome   string    `json:"outcome,omitempty"`
}

// ParseEvents reads lines of JSON. A killed process may leave an incomplete last line, which is ignored.
func ParseEvents(lines []byte) ([]Event, error) {
	var events []Event
	for n := 1; ; n++ {
		line, rest, whole := bytes.Cut(lines, []byte{'\n'})
		if !whole {
			return events, nil
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("evidence, line %d: %w", n, err)
		}
		events = append(events, e)
		lines = rest
	}
}

// ExpectedSchedule is what a client was promised: the job runs at AnchorMS + k*Every for each such time from FromMS
// (inclusive) to UntilMS (exclusive, 0 for the end of the history). Every 0 promises no times, only that the job
// is known. An edit of a schedule ends one promise and begins another.
type ExpectedSchedule struct {
	Job      string
	AnchorMS int64
	// GivenNS is the time that was given for AnchorMS, which is that rounded up to the
	// millisecond; 0: they are the same. No run starts before its time as it was given.
	GivenNS         int64
	Every           time.Duration
	FromMS, UntilMS int64
	// Edited: an edit of a job began it. A run of the schedule before it, which a
	// fault holds back, still counts as live, and may never start.
	Edited bool
	// Unsure: the registration was never acknowledged. The job may run, or not exist.
	Unsure bool
}

// Promised is the promise for a job with this start, to the nanosecond.
func Promised(job string, start time.Time, every time.Duration) ExpectedSchedule {
	ms := (start.UnixNano() + int64(time.Millisecond) - 1) / int64(time.Millisecond)
	return ExpectedSchedule{Job: job, AnchorMS: ms, GivenNS: start.UnixNano(), Every: every, FromMS: ms}
}

// leadNS is by how much its times were given before the millisecond that they are rounded to.
func (p *ExpectedSchedule) leadNS() int64 {
	if p.GivenNS == 0 {
		return 0
	}
	return p.AnchorMS*1e6 - p.GivenNS
}

// Fault is something that a test did to the cluster.
type Fault struct {
	Name         string
	FromNS, ToNS int64
	// Hold is how much longer than ToNS work may be held back: the documented
	// time of take-over.
	Hold time.Duration
	// Workers whose leases or results it may have cost; nil is all of them.
	Workers []string
	// Clock: Redis's clock was set, so it does not show how long leases lived.
	Clock bool
	// Harmless faults delay work but cost no lease and no result.
	Harmless bool
}

// Bounds of calm times.
type Bounds struct {
	// Lag from a scheduled time to the handler's start.
	Lag time.Duration
	// Grace is the additional lag that is excused, because the machine has other work. It moves no other bound.
	Grace time.Duration
	// Settle from a handler's end to the moment its result is stored.
	Settle time.Duration
	// LeaseTTL of the cluster; leases are renewed every third of it.
	LeaseTTL time.Duration
	// SessionTTL is how long the session of a worker, and its leases, live after a heartbeat. 0: workers send
	// none, and may start runs that were leased to them long before; tokens then need only grow.
	SessionTTL time.Duration
	// Longest that a handler runs.
	Longest time.Duration
	// Early is how much too early a start is not held against the cluster: for a test that
	// has its clocks go at a wrong rate.
	Early time.Duration
}

// History is everything that [Check] judges.
type History struct {
	ExpectedSchedules []ExpectedSchedule
	NoRunPeriods      []NoRunPeriod
	ManualRuns        []ManualRun
	// Redriven are jobs whose dead run was redriven: it begins again with attempt 1, once.
	Redriven []string
	Backoffs []Backoff
	Waits    []Wait
	Shared   []Shared
	Events   []Event
	Faults   []Fault
	Bounds   Bounds
	// EndNS is when evidence was collected.
	EndNS int64
	// Stored are the jobs found stored at the end; nil if they were not read.
	Stored map[string]bool
	// GivenUp are the jobs that back off after a run that was given up, as workers died with it
	// one after the other; they would count as late otherwise.
	GivenUp map[string]bool
}

// Kind names what is wrong.
type Kind string

// Kinds of findings, as the package comment explains them.
const (
	Missed     Kind = "missed"
	Late       Kind = "late"
	Lost       Kind = "lost"
	Overlap    Kind = "overlap"
	Expired    Kind = "expired"
	TokenOrder Kind = "token order"
	Early      Kind = "early"
	Repeat     Kind = "repeat"
	Attempt    Kind = "attempt"
	Unfinished Kind = "unfinished"
	Stray      Kind = "stray"
	Shrunk     Kind = "shrunk"
	Uncalled   Kind = "uncalled"
	Hasty      Kind = "hasty"
	Dropped    Kind = "dropped"
)

// Finding is one violation.
type Finding struct {
	Kind Kind
	Job  string
	Text string
}

func (f Finding) String() string { return fmt.Sprintf("%s: %s: %s", f.Kind, f.Job, f.Text) }

// Report is the verdict, with the counts by which a test proves that its history
// had the power to show a fault.
type Report struct {
	Findings []Finding

	Executions int
	Targets    int // nominal times that had to have a run
	Excused    int // nominal times that passed while an earlier run was late or live
	Repeats    int // executions of a run beyond its first
	Asked      int // manual runs that had to begin
	Waits      int // waits after failed runs of jobs with a Backoff
	Waited     int // waits after failed attempts of jobs with a Wait
	Held       int // executions that held a Shared lock
	// Lags of the first executions of the runs, in order of start.
	Lags []Lag
}

// Lag is how long after its due time a run first started.
type Lag struct {
	AtNS int64
	Lag  time.Duration
}

func (r *Report) addFinding(kind Kind, job, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{Kind: kind, Job: job, Text: fmt.Sprintf(format, args...)})
}
