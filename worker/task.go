package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fermata-io/fermata/internal/core/job"
)

// MaxOutput bounds what [Task.SetOutput] keeps, in bytes.
const MaxOutput = job.MaxOutput

// Handler runs one attempt. See the package comment for what its context and its
// error mean.
type Handler func(ctx context.Context, t *Task) error

// Task is one attempt of one run.
type Task struct {
	// Run is the full name, namespaces/{n}/jobs/{j}/runs/{r}: the same for all
	// attempts of a run, so it can serve as an idempotency key.
	Run       string
	Namespace string
	Job       string
	Queue     string
	Handler   string
	Payload   []byte
	Labels    map[string]string
	// Attempt counts from 1.
	Attempt int
	// MaxAttempts is 0 when the policy has no bound.
	MaxAttempts int
	// NominalTime is the time by the schedule's rule, DueTime that after jitter
	// and backoff.
	NominalTime time.Time
	DueTime     time.Time
	// Timeout is how long the handler may run; 0 means without bound.
	Timeout time.Duration
	// Token is the fencing token: it grows with every lease of the job.
	Token int64
	// CorrelationID is new for each run and found in the logs of every part.
	CorrelationID string

	mu     sync.Mutex
	output []byte
}

// splitRun takes namespace and job out of namespaces/{n}/jobs/{j}/runs/{r}.
func splitRun(run string) (namespace, job string) {
	rest, named := strings.CutPrefix(run, "namespaces/")
	namespace, rest, hasJob := strings.Cut(rest, "/jobs/")
	job, _, hasRun := strings.Cut(rest, "/runs/")
	if !named || !hasJob || !hasRun {
		return "", ""
	}
	return namespace, job
}

// lastPart is the id at the end of a full name.
func lastPart(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// LastAttempt tells whether a failure of this attempt ends the run.
func (t *Task) LastAttempt() bool { return t.MaxAttempts > 0 && t.Attempt >= t.MaxAttempts }

// Decode reads the payload as JSON into v.
func (t *Task) Decode(v any) error {
	if err := json.Unmarshal(t.Payload, v); err != nil {
		return fmt.Errorf("payload: %w", err)
	}
	return nil
}

// SetOutput says what is to be kept with the run, whether it succeeds or fails.
// The last call counts. At most [MaxOutput] bytes are kept.
func (t *Task) SetOutput(output []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.output = append([]byte(nil), output[:min(len(output), MaxOutput)]...)
}

// Output is what SetOutput kept.
func (t *Task) Output() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.output
}

// Excerpt returns the beginning of b as text that takes at most n bytes inside
// of a JSON string. Bytes that are not UTF-8 and control characters become U+FFFD.
func Excerpt(b []byte, n int) string {
	var out strings.Builder
	cost := 0
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		var bytes int
		switch {
		case r == '\n' || r == '\r' || r == '\t' || r == '"' || r == '\\':
			bytes = 2
		case r < ' ' || r == 0x7f:
			r, bytes = utf8.RuneError, 3
		case r == '<' || r == '>' || r == '&' || r == '\u2028' || r == '\u2029':
			bytes = 6
		default:
			bytes = utf8.RuneLen(r)
		}
		if cost += bytes; cost > n {
			break
		}
		out.WriteRune(r)
		b = b[size:]
	}
	return out.String()
}
