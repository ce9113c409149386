package shardlock

import (
	"maps"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/ring"
)

// setView takes over what gossip shows.
func (l *loop) setView(v ring.View, now time.Time) {
	l.told = v
	others := slices.ContainsFunc(v.Members, func(m ring.Member) bool { return m.Name != l.o.Node })
	if l.m.company.Store(others); others {
		select {
		case l.m.joined <- struct{}{}:
		default:
		}
	}
	l.survey(now)
}

// survey takes stock of who is alive, and finds the owners of the shards.
func (l *loop) survey(now time.Time) {
	v := l.survivors(l.told)
	members := make(map[string]bool, len(v.Members))
	l.process = make(map[string]string, len(v.Members))
	for _, member := range v.Members {
		members[member.Name] = true
		if member.Process != "" {
			l.process[member.Name] = member.Process
		}
	}
	if !maps.Equal(members, l.members) {
		l.members, l.changed = members, now
	}
	l.view, l.asideAt = v, time.Time{}
	if !maps.Equal(asideOf(v), l.aside) {
		l.asideAt = now.Add(l.o.damping())
	}
	l.assign(now)
}

// asideOf are the members that stand aside.
func asideOf(v ring.View) map[string]bool {
	aside := map[string]bool{}
	for _, m := range v.Members {
		if m.Aside {
			aside[m.Name] = true
		}
	}
	return aside
}

// assign finds the owners of all shards.
func (l *loop) assign(now time.Time) {
	v := l.view
	v.Members = slices.Clone(v.Members)
	for i := range v.Members {
		v.Members[i].Aside = l.aside[v.Members[i].Name]
	}
	for shard, owner := range ring.Assign(v, l.o.Shards) {
		s := l.slots[shard]
		if owner == l.o.Node && s.owner != owner && s.lock == nil {
			s.next = now
		}
		s.owner = owner
		if s.expect != "" && l.lives(s.expect) {
			s.expect = ""
		}
	}
}
