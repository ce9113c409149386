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
	l.process = make(map[string]string, len(v.Members))
	l.members = namesOf(v)
	for _, member := range v.Members {
		if member.Process != "" {
			l.process[member.Name] = member.Process
		}
	}
	// Who only gossip knows neither owns a shard nor holds a handover up.
	v = l.eligible(v)
	if owners := namesOf(v); !maps.Equal(owners, l.owners) {
		l.owners, l.changed = owners, now
	}
	l.view = v
	switch aside := asideOf(v); {
	case maps.Equal(aside, l.aside):
		l.asideAt = time.Time{}
	case l.asideAt.IsZero() || !maps.Equal(aside, l.asideNext):
		l.asideNext, l.asideAt = aside, now.Add(l.o.damping())
	}
	l.assign(now)
}

func namesOf(v ring.View) map[string]bool {
	names := make(map[string]bool, len(v.Members))
	for _, m := range v.Members {
		names[m.Name] = true
	}
	return names
}

// eligible is a view of those members whose heartbeat is in this keyspace. Before this
// node has read them for a second, all are.
func (l *loop) eligible(v ring.View) ring.View {
	owners := l.m.owners.Load()
	if owners == nil {
		return v
	}
	l.filter = owners
	v.Members = slices.DeleteFunc(slices.Clone(v.Members), func(m ring.Member) bool {
		return m.Name != l.o.Node && (m.Process == "" || (*owners)[m.Name] != m.Process)
	})
	return v
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
	owners := ring.Assign(v, l.o.Shards)
	l.m.placed.Store(&placement{owners: owners, view: v})
	for shard, owner := range owners {
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
