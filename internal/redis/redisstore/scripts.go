package redisstore

import (
	"embed"
	"slices"

	"github.com/fermata-io/fermata/internal/redis/limits"
	"github.com/fermata-io/fermata/internal/redis/redisfunc"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

//go:embed lua/*.lua lua/parts/*.lua
var sources embed.FS

// scripts are all scripts of the store.
//
// At maxmemory, a real server rejects scripts without the flag allow-oom. Scripts that free memory in the
// long run have it: leasing, settling, renewing, reaping, sweeping, and the clock that they need. Apply comes in
// two forms: apply, which writes history and dead letters, and applyLean, which omits them and always
// succeeds.
type scripts struct {
	create, read, walk, ends, restore            *runner.Script
	definitions                                  *runner.Script
	lease, apply, applyLean, renew, reap         *runner.Script
	sweep                                        *runner.Script
	mend, keyspace, secret, grant, trail, export *runner.Script
	announce, hook, objectives                   *runner.Script
	renameReserve, renameTake                    *runner.Script
	renameStore, renameEnd                       *runner.Script
	clocks                                       runner.ClockScripts
	limits                                       limits.Scripts
}

// loadScripts composes the scripts. An embedded server has no flags and no limit of memory. Scripts write
// events only if events are recorded.
func loadScripts(embedded, events bool) scripts {
	return compose(runner.NewLoader(embedded), events)
}

// loadFunctions composes them to be called as functions of the library.
func loadFunctions(events bool) scripts {
	all := runner.NewLoader(false)
	s := compose(all, events)
	all.CallFunctions(Library())
	return s
}

// Library is the library of the functions that a store calls under
// [Options.Functions], with those of stores that record events.
func Library() redisfunc.Library {
	all := runner.NewLoader(false)
	compose(all, false)
	compose(all, true)
	return all.Library("store")
}

func compose(all *runner.Loader, events bool) scripts {
	l, e := loader{all, false}, loader{all, events}
	s := scripts{
		create:      e.load("create", ""),
		read:        l.load("read", "no-writes"),
		walk:        l.load("walk", "no-writes"),
		ends:        l.load("ends", "no-writes"),
		definitions: l.load("definitions", "no-writes"),
		restore:     e.load("restore", ""),
		lease:       l.load("lease", "allow-oom"),
		apply:       e.load("apply", ""),
		applyLean:   l.load("apply", "allow-oom"),
		renew:       l.load("renew", "allow-oom"),
		reap:        l.load("reap", "allow-oom"),
		sweep:       l.load("sweep", "allow-oom"),
		mend:        l.load("mend", "allow-oom"),
		clocks:      runner.LoadClock(all),
		keyspace:    l.load("keyspace", ""),
		secret:      l.load("secret", ""),
		grant:       l.load("grant", ""),
		trail:       l.load("trail", ""),
		export:      l.load("export", ""),
		limits:      limits.LoadScripts(all),
		announce:    e.load("announce", ""),
		hook:        l.load("hook", "allow-oom"),
		objectives:  l.load("objectives", "allow-oom"),

		renameReserve: l.load("rename_reserve", ""),
		renameTake:    e.load("rename_take", ""),
		renameStore:   e.load("rename_store", "allow-oom"), // what was taken has to be somewhere
		renameEnd:     l.load("rename_end", "allow-oom"),
	}
	for _, reader := range []*runner.Script{s.reap, s.read, s.definitions, s.walk, s.ends, s.grant, s.announce} {
		reader.Mutates = false
	}
	s.trail.Mutates = false      // no caller waits for its record
	s.objectives.Mutates = false // an entry that reappears is checked again
	return s
}

// loader loads scripts of this package, which write events if events are recorded.
type loader struct {
	*runner.Loader
	events bool
}

func (l loader) load(name, flags string) *runner.Script {
	return l.Load(sourceOf(name, flags, l.events))
}

// clockless are the scripts that work on no shard, or without its clock.
var clockless = []string{
	"keyspace", "secret", "trail", "export", "read", "definitions", "walk", "ends", "grant", "hook", "objectives",
}

// laneWriters are the scripts that may make a lane due earlier.
var laneWriters = []string{
	"create", "restore", "apply", "sweep", "mend", "rename_reserve", "rename_take", "rename_store", "rename_end",
}

// revisionWriters are the scripts that store the revisions of jobs.
var revisionWriters = []string{"restore", "apply"}

// definitionReaders are the scripts that read definitions by name.
var definitionReaders = []string{"lease", "read", "definitions"}

// sourceOf describes a script of this package.
func sourceOf(name, flags string, events bool) runner.Source {
	s := runner.Source{Files: sources, Name: name, Flags: flags, Clock: runner.WithClock, Expand: expandMacros}
	switch {
	case slices.Contains(clockless, name):
		s.Clock = runner.WithoutClock
	case name == "lease":
		s.Clock = runner.StoringClock // together with its batch
	}
	if slices.Contains(laneWriters, name) {
		s.Parts = append(s.Parts, "lanes")
	}
	if slices.Contains(revisionWriters, name) {
		s.Parts = append(s.Parts, "revisions")
	}
	if slices.Contains(definitionReaders, name) {
		s.Parts = append(s.Parts, "bounded")
	}
	if events {
		s.Parts, s.Variant = append(s.Parts, "events"), "events"
	}
	return s
}
