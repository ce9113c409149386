package playground

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/tui"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// findForeignRuns describes the live runs after the playground's own worker has drained: others have them. The workers
// of a run are those of its queue.
func (p *playground) findForeignRuns(ctx context.Context) (runs []string) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	workers, err := p.client.Admin().Workers(ctx)
	if err != nil {
		workers = nil // the runs are named without them
	}
	for j, err := range p.client.Jobs(ctx, allJobs) {
		if err != nil {
			return runs // the end waits for the others nevertheless
		}
		if s := j.GetStatus(); s.GetState() != fermatav1.JobStatus_STATE_RUNNING && s.GetConcurrentRuns() == 0 {
			continue
		}
		all, err := p.client.Runs(ctx, client.JobID(j))
		if err != nil {
			return runs
		}
		for _, r := range all {
			if r.GetState() == fermatav1.Run_STATE_RUNNING {
				runs = append(runs, fmt.Sprintf("run %s of %s%s", client.RunID(r), client.JobID(j),
					describeWorkers(workers, j.GetQueue())))
			}
		}
	}
	return runs
}

// describeWorkers names the busy workers of a queue; empty if there is none.
func describeWorkers(workers []*client.Worker, queue string) string {
	var names []string
	for _, w := range workers {
		if w.GetRunning() > 0 && slices.Contains(w.GetQueues(), queue) {
			names = append(names, tui.StripControls(w.GetWorkerId()))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " on worker " + strings.Join(names, " or ")
}

// reportForeignRuns says how the wait for runs of other workers ended. That they had not ended in time is no error:
// the playground keeps nothing.
func (p *playground) reportForeignRuns(stopped error) error {
	if len(p.foreignRuns) == 0 {
		return stopped
	}
	runs := strings.Join(p.foreignRuns, ", ")
	switch {
	case errors.Is(stopped, context.DeadlineExceeded), errors.Is(stopped, context.Canceled):
		fmt.Fprintf(p.options.Out, "Stopped before the end of %s; nothing is kept.\n", runs)
		return nil
	case stopped == nil:
		fmt.Fprintln(p.options.Out, "Drained; nothing is kept.")
	}
	return stopped
}

// explainTakenAddress adds what to do if another process, perhaps another playground, listens at an address.
func explainTakenAddress(err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	return fmt.Errorf("%w\nif another playground runs, stop it, or start this one by bin/scheduler dev with other "+
		"addresses: see bin/scheduler dev --help", err)
}
