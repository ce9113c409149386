package shardlock

import (
	"maps"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/sharding"
)

// applyView applies the view of gossip.
func (l *managerLoop) applyView(v sharding.View, now time.Time) {
	l.gossipView = v
	others := slices.ContainsFunc(v.Members, func(m sharding.Member) bool { return m.Name != l.o.Node })
	l.m.hasPeers.Store(others)
	if others {
		select {
		case l.m.peersJoined <- struct{}{}:
		default:
		}
	}
	l.updateMembers(now)
}

// updateMembers finds the live members and assigns the shards to their owners.
func (l *managerLoop) updateMembers(now time.Time) {
	v := l.withoutEnded(l.gossipView)
	l.currentProcess = make(map[string]string, len(v.Members))
	l.members, l.allMembers = memberNames(v), v.Members
	for _, member := range v.Members {
		if member.Process != "" {
			l.currentProcess[member.Name] = member.Process
		}
	}
	// A member that only gossip knows neither owns a shard nor delays a handover.
	v = l.filterEligible(v)
	if owners := memberNames(v); !maps.Equal(owners, l.owners) {
		l.owners, l.ownersChangedAt = owners, now
	}
	l.view = v
	l.scheduleWithdrawals(withdrawnOf(v), now)
	l.assignOwners(now)
}

// scheduleWithdrawals has the set of withdrawn members take effect when it has been unchanged for a while, and soon
// after the first change if it keeps changing: else members that withdraw and return again and again would keep the
// shards of another one without a holder.
func (l *managerLoop) scheduleWithdrawals(withdrawn map[string]bool, now time.Time) {
	switch {
	case maps.Equal(withdrawn, l.withdrawn):
		l.withdrawnAt = time.Time{}
		return
	case l.withdrawnAt.IsZero():
		l.withdrawnLatest = now.Add(maxWithdrawalDelays * l.o.withdrawalDelay())
	case maps.Equal(withdrawn, l.withdrawnNext):
		return
	}
	l.withdrawnNext, l.withdrawnAt = withdrawn, now.Add(l.o.withdrawalDelay())
	if l.withdrawnAt.After(l.withdrawnLatest) {
		l.withdrawnAt = l.withdrawnLatest
	}
}

func memberNames(v sharding.View) map[string]bool {
	names := make(map[string]bool, len(v.Members))
	for _, m := range v.Members {
		names[m.Name] = true
	}
	return names
}

// filterEligible returns a view of the members whose heartbeat is in this keyspace. Before this node has read
// heartbeats for a second, that is all members.
func (l *managerLoop) filterEligible(v sharding.View) sharding.View {
	owners := l.m.owners.Load()
	if owners == nil {
		return v
	}
	l.appliedOwners = owners
	v.Members = slices.DeleteFunc(slices.Clone(v.Members), func(m sharding.Member) bool {
		return m.Name != l.o.Node && (m.Process == "" || (*owners)[m.Name] != m.Process)
	})
	return v
}

// withdrawnOf returns the members that have withdrawn.
func withdrawnOf(v sharding.View) map[string]bool {
	withdrawn := map[string]bool{}
	for _, m := range v.Members {
		if m.Withdrawn {
			withdrawn[m.Name] = true
		}
	}
	return withdrawn
}

// assignOwners finds the owners of all shards.
func (l *managerLoop) assignOwners(now time.Time) {
	v := l.view
	v.Members = slices.Clone(v.Members)
	for i := range v.Members {
		v.Members[i].Withdrawn = l.withdrawn[v.Members[i].Name]
	}
	owners := sharding.Assign(v, l.o.Shards)
	l.m.placement.Store(&shardPlacement{owners: owners, members: l.allMembers})
	for shard, owner := range owners {
		s := l.shards[shard]
		if owner == l.o.Node && s.owner != owner && s.lock == nil {
			s.nextAt = now
		}
		if s.owner != owner {
			s.substituteUntil = time.Time{}
		}
		s.owner = owner
		if s.replaceValue != "" && l.holderIsAlive(s.replaceValue) {
			s.replaceValue = ""
		}
	}
}
