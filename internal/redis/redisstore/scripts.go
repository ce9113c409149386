package redisstore

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/redis/redisfunc"
)

//go:embed lua/*.lua lua/parts/*.lua
var sources embed.FS

// script is one Lua script, made ready for the kind of server at hand.
type script struct {
	name   string
	source string
	sha    string // its name in the server's cache
	// function is its name where scripts are called as functions, else "".
	function string
	// mutates: its effects are confirmed to the durability class.
	mutates bool
	// sharded: it works on a shard, takes the common arguments and answers
	// with code and clock.
	sharded bool
	// mayShare: its calls may share a pipeline with those of other callers.
	mayShare bool
}

// scripts are all scripts of the store.
//
// At maxmemory, a real server rejects scripts without the flag allow-oom. Scripts that free memory in the
// long run have it: leasing, settling, renewing, reaping, and the clock that they need. Apply comes in
// two forms: apply, which writes history and dead letters, and applyLean, which omits them and always
// succeeds.
type scripts struct {
	create, read, definitions, walk, ends, restore, lease, apply, applyLean, renew, reap, mend, clock, confirm, keyspace, secret, grant, trail *script
	limits                                                                                                                                     limitScripts
	announce, hook, objectives                                                                                                                 *script
}

// loadScripts composes the scripts. An embedded server has no flags and no limit of memory. Scripts write
// events only if events are recorded.
func loadScripts(embedded, events bool) scripts {
	return compose(&loader{embedded: embedded}, events)
}

// loadFunctions composes them to be called as functions of the library.
func loadFunctions(events bool) scripts {
	l, library := &loader{}, Library()
	s := compose(l, events)
	for _, made := range l.made {
		made.script.function = library.Function(made.name())
	}
	return s
}

// Library is the library of the functions that a store calls under
// [Options.Functions], with those of stores that record events.
func Library() redisfunc.Library {
	l := &loader{}
	compose(l, false)
	compose(l, true)
	return l.functions()
}

func compose(l *loader, events bool) scripts {
	e := eventful{l, events}
	s := scripts{
		create:      e.load("create", ""),
		read:        l.load("read", "no-writes"),
		walk:        l.load("walk", "no-writes"),
		definitions: l.load("definitions", "no-writes"),
		ends:        l.load("ends", "no-writes"),
		restore:     e.load("restore", ""),
		lease:       l.load("lease", "allow-oom"),
		apply:       e.load("apply", ""),
		applyLean:   l.load("apply", "allow-oom"),
		renew:       l.load("renew", "allow-oom"),
		reap:        l.load("reap", "allow-oom"),
		mend:        l.load("mend", "allow-oom"),
		clock:       l.load("clock", "allow-oom"),
		confirm:     l.load("clock", "allow-oom"),
		keyspace:    l.load("keyspace", ""),
		secret:      l.load("secret", ""),
		grant:       l.load("grant", ""),
		trail:       l.load("trail", ""),
		limits:      loadLimits(l),
		announce:    e.load("announce", ""),
		hook:        l.load("hook", "allow-oom"),

		objectives: l.load("objectives", "allow-oom"),
	}
	for _, reads := range []*script{s.reap, s.clock, s.read, s.definitions, s.walk, s.ends, s.grant, s.announce} {
		reads.mutates = false
	}
	s.trail.mutates = false      // no caller waits for its record
	s.objectives.mutates = false // an entry that reappears is checked again
	return s
}

type loader struct {
	embedded bool
	made     []madeScript
}

// eventful loads the scripts that write events where they are recorded.
type eventful struct {
	*loader
	events bool
}

func (e eventful) load(name, flags string) *script { return e.compile(name, flags, e.events) }

// madeScript is a script with the parts that it was made from.
type madeScript struct {
	script *script
	flags  string
	events bool
}

// name is the name of the function. A file with several flags, or with events, makes several functions.
func (m madeScript) name() string {
	name := m.script.name
	if m.events {
		name += "_events"
	}
	if m.flags != "" {
		name += "_" + strings.ReplaceAll(m.flags, "-", "_")
	}
	return name
}

// clockless are the scripts that work on no shard, or without its clock.
var clockless = []string{"keyspace", "secret", "trail", "read", "definitions", "walk", "ends", "grant", "hook", "objectives", "census", "census_bytes", "limit_jobs", "limit_queues"}

// laneWriters are the scripts that may make a lane due earlier.
var laneWriters = []string{"create", "restore", "apply", "mend"}

// definitionReaders are the scripts that read definitions by name.
var definitionReaders = []string{"lease", "read", "definitions"}

// partsOf lists the parts that precede a script.
func partsOf(name string, events bool) []string {
	parts := []string{"prelude"}
	if !slices.Contains(clockless, name) {
		parts = append(parts, "time")
		if name != "lease" { // it writes its batch together with the clock
			parts = append(parts, "tick")
		}
	}
	if slices.Contains(laneWriters, name) {
		parts = append(parts, "lanes")
	}
	if slices.Contains(definitionReaders, name) {
		parts = append(parts, "bounded")
	}
	if events {
		parts = append(parts, "events")
	}
	return parts
}

// textOf is the text of a script without its flags.
func textOf(name string, events bool) string {
	var text strings.Builder
	for _, part := range partsOf(name, events) {
		text.WriteString(readSource("parts/" + part))
	}
	text.WriteString(readSource(name))
	return expandMacros(text.String())
}

func (l *loader) load(name, flags string) *script { return l.compile(name, flags, false) }

func (l *loader) compile(name, flags string, events bool) *script {
	head := "#!lua\n"
	if flags != "" {
		head = "#!lua flags=" + flags + "\n"
	}
	if l.embedded {
		head = ""
	}
	text := head + textOf(name, events)
	sum := sha1.Sum([]byte(text))
	s := &script{name: name, source: text, sha: hex.EncodeToString(sum[:]), mutates: true, sharded: !slices.Contains(clockless, name)}
	l.made = append(l.made, madeScript{s, flags, events})
	return s
}

// functions has each script once, in the order in which they were made.
func (l *loader) functions() redisfunc.Library {
	var list []redisfunc.Script
	known := map[string]bool{}
	for _, m := range l.made {
		if known[m.name()] {
			continue
		}
		known[m.name()] = true
		f := redisfunc.Script{Name: m.name(), Source: textOf(m.script.name, m.events)}
		if m.flags != "" {
			f.Flags = []string{m.flags}
		}
		list = append(list, f)
	}
	return redisfunc.New("store", list)
}

// readSource reads an embedded file. A missing one is a programming error.
func readSource(name string) string {
	text, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("redisstore: " + err.Error())
	}
	return string(text)
}
