// Package load is the process that runs the handlers of a measurement, for any
// peer, and the handle by which the benchmark leads it.
//
// The process is this program again, with the argument [Command]. It reads its
// [Config] from the first line of its standard input and then one request a line;
// each is answered by a line of JSON. It ends when its input ends.
package load

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/bench/internal/record"
)

// Command is the argument that makes this program a worker.
const Command = "worker"

// Kinds of workers.
const (
	Fermata = "fermata"
	Asynq   = "asynq"
)

// Config is the task of the process.
type Config struct {
	Kind string
	// Addresses of scheduler nodes, or of the one redis-server that asynq works on.
	Addresses []string
	Queues    []string
	// Slots is how many handlers run at once in each of the Servers: of asynq, or workers of Fermata. 0 is 1 server.
	Slots   int
	Servers int
	// EachAtOne connects each of Fermata's workers to the next of the Addresses, instead of any.
	EachAtOne bool
	// Prefetch is how many jobs may wait at Fermata's worker for a slot: 0 as many as by
	// default, -1 none.
	Prefetch int
	// PollMS is how often asynq looks for tasks that are due and for tasks to run; 0
	// leaves its defaults.
	PollMS int
	// FailFirst makes each job's first attempt fail.
	FailFirst bool
	// Classes is how many jobs of each class there are.
	Classes []int
	// Every is the interval of the jobs of class 0, the only one, and Periods the number of runs that are recorded of
	// each. 0: they run once.
	Every   time.Duration
	Periods int
}

// recorder makes the recorder of the process.
func (c Config) recorder() *record.Recorder {
	if c.Periods > 0 {
		return record.NewRecurring(c.Classes[0], c.Every, c.Periods)
	}
	return record.New(c.Classes...)
}

// request is a line to the process.
type request struct {
	Do     string // one of those below
	Expect int    `json:",omitempty"`
	Shards int    `json:",omitempty"`
	File   string `json:",omitempty"`
}

const (
	doGo        = "go"       // connect and work
	doState     = "state"    // how many executions so far
	doReport    = "report"   // what became of all jobs
	doProfile   = "profile"  // write a CPU profile from now on to File
	doProfileOK = "profiled" // end the profile
	doDrain     = "drain"    // finish and disconnect
)

// answer is a line from it.
type answer struct {
	Executed int
	Reports  []record.Report `json:",omitempty"`
	Error    string          `json:",omitempty"`
}

// engine is a peer's worker.
type engine interface {
	// run works until ctx ends, and then finishes what it does.
	run(ctx context.Context) error
}
