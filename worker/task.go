package worker

import (
	"context"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fermata-io/fermata/internal/core/job"
)

// MaxOutput is the maximum size of the output kept by [Task.SetOutput], in bytes.
const MaxOutput = job.MaxOutput

// Handler runs one attempt. The package comment describes how its error and its context are used. Handlers are
// called concurrently.
type Handler func(ctx context.Context, t *Task) error

// Task is one attempt of a run. It must not be used after the handler has returned.
type Task struct {
	// Run is the full name of the run, namespaces/{n}/jobs/{j}/runs/{r}. It is the same for all attempts of a
	// run, so it can serve as an idempotency key.
	Run       string
	Namespace string
	Job       string
	Queue     string
	Handler   string
	Payload   []byte
	Labels    map[string]string
	// Attempt is the number of this attempt, from 1.
	Attempt int
	// MaxAttempts is the maximum number of attempts of the run; 0 means no limit.
	MaxAttempts int
	// NominalTime is the scheduled time by the schedule's rule. DueTime is the time after jitter and backoff.
	NominalTime time.Time
	DueTime     time.Time
	// Timeout is how long the handler may run; 0 means no timeout.
	Timeout time.Duration
	// Token is the fencing token. It grows with every lease of the job.
	Token int64
	// CorrelationID is unique to the run. Workers and nodes log it.
	CorrelationID string

	mu     sync.Mutex
	output []byte
}

// splitRunName returns namespace and job of namespaces/{n}/jobs/{j}/runs/{r}, or empty strings.
func splitRunName(run string) (namespace, job string) {
	rest, named := strings.CutPrefix(run, "namespaces/")
	namespace, rest, hasJob := strings.Cut(rest, "/jobs/")
	job, _, hasRun := strings.Cut(rest, "/runs/")
	if !named || !hasJob || !hasRun {
		return "", ""
	}
	return namespace, job
}

// lastNamePart returns the id at the end of a full name.
func lastNamePart(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// LastAttempt reports whether a failure of this attempt ends the run.
func (t *Task) LastAttempt() bool { return t.MaxAttempts > 0 && t.Attempt >= t.MaxAttempts }

// SetOutput sets the output to keep with the run, whether it succeeds or fails. The last call counts. Output
// longer than [MaxOutput] bytes is cut. It is safe for concurrent use.
func (t *Task) SetOutput(output []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.output = append([]byte(nil), output[:min(len(output), MaxOutput)]...)
}

// Output returns the output set by SetOutput.
func (t *Task) Output() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.output
}

// Excerpt returns the start of b as text that takes at most n bytes inside a JSON string. Invalid UTF-8 and
// control characters become U+FFFD.
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
		cost += bytes
		if cost > n {
			break
		}
		out.WriteRune(r)
		b = b[size:]
	}
	return out.String()
}
