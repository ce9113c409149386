package limits

import (
	"embed"

	"github.com/fermata-io/fermata/internal/redis/runner"
)

//go:embed lua/*.lua
var sources embed.FS

// Scripts are the scripts of limits. Except for a census, all pass at maxmemory: what is live has to be given
// back, what is due to be started, and a limit to be changed. What they store is bounded.
type Scripts struct {
	units, count, view, rate, swap, read, queues, jobs, census, measure *runner.Script
}

// LoadScripts composes the scripts. Only what others rely on is confirmed to the
// durability class: a rate limit that a failover loses lets one burst through.
func LoadScripts(l *runner.Loader) Scripts {
	load := func(name, flags string, clock runner.ClockUse) *runner.Script {
		s := l.Load(runner.Source{Files: sources, Name: name, Flags: flags, Clock: clock})
		s.Mutates = false
		return s
	}
	s := Scripts{
		units:   load("limit_units", "allow-oom", runner.WithClock),
		count:   load("limit_units", "allow-oom", runner.WithClock),
		view:    load("limit_view", "allow-oom", runner.WithClock),
		rate:    load("limit_rate", "allow-oom", runner.WithClock),
		swap:    load("limit_cells", "allow-oom", runner.WithClock),
		read:    load("limit_cells", "allow-oom", runner.WithClock),
		queues:  load("limit_queues", "allow-oom", runner.WithoutClock),
		jobs:    load("limit_jobs", "allow-oom", runner.WithoutClock),
		census:  load("census", "no-writes", runner.WithoutClock),
		measure: load("census_bytes", "no-writes", runner.WithoutClock),
	}
	s.units.Mutates, s.swap.Mutates, s.queues.Mutates = true, true, true
	// Runs ask for units and circuits in one batch each. While answers are late, one connection for each batch would
	// exceed the pool, so that batches share connections. Calls for rates and rooms wait for a moment only.
	s.units.MayShare, s.swap.MayShare, s.read.MayShare = true, true, true
	return s
}
