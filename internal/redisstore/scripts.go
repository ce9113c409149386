package redisstore

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
)

//go:embed lua/*.lua
var sources embed.FS

// script is one Lua script, made ready for the kind of server at hand.
type script struct {
	name   string
	source string
	sha    string // its name in the server's cache
	// mutates: its effects are confirmed to the durability class.
	mutates bool
	// sharded: it works on a shard, takes the common arguments and answers
	// with code and clock.
	sharded bool
}

// scripts are all scripts of the store.
//
// A real server refuses at maxmemory what does not say allow-oom. What frees
// memory in the long run says so: leasing, settling, renewing, reaping, and the
// clock that they need. Apply comes in two forms: apply, which carries history
// and dead letters, and applyLean, which does without and always passes.
type scripts struct {
	create, read, restore, lease, apply, applyLean, renew, reap, mend, clock, confirm, keyspace, secret, grant *script
	limits                                                                                                     limitScripts
}

// loadScripts composes the scripts. An embedded server knows no flags; it has no
// limit of memory either.
func loadScripts(embedded bool) scripts {
	l := loader{embedded: embedded, prelude: source("prelude")}
	s := scripts{
		create:    l.load("create", ""),
		read:      l.load("read", "no-writes"),
		restore:   l.load("restore", ""),
		lease:     l.load("lease", "allow-oom"),
		apply:     l.load("apply", ""),
		applyLean: l.load("apply", "allow-oom"),
		renew:     l.load("renew", "allow-oom"),
		reap:      l.load("reap", "allow-oom"),
		mend:      l.load("mend", "allow-oom"),
		clock:     l.load("clock", "allow-oom"),
		confirm:   l.load("clock", "allow-oom"),
		keyspace:  l.load("keyspace", ""),
		secret:    l.load("secret", ""),
		grant:     l.load("grant", ""),
		limits:    loadLimits(l),
	}
	s.reap.mutates, s.clock.mutates = false, false
	s.keyspace.sharded, s.secret.sharded, s.read.sharded, s.read.mutates = false, false, false, false
	s.grant.sharded, s.grant.mutates = false, false
	return s
}

type loader struct {
	embedded bool
	prelude  string
}

func (l loader) load(name, flags string) *script {
	head := "#!lua\n"
	if flags != "" {
		head = "#!lua flags=" + flags + "\n"
	}
	if l.embedded {
		head = ""
	}
	text := head + l.prelude + source(name)
	sum := sha1.Sum([]byte(text))
	return &script{name: name, source: text, sha: hex.EncodeToString(sum[:]), mutates: true, sharded: true}
}

// source reads an embedded file. A missing one is a fault of the build.
func source(name string) string {
	text, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("redisstore: " + err.Error())
	}
	return string(text)
}
