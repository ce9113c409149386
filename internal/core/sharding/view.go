package sharding

import (
	"cmp"
	"slices"
	"strings"
)

// Member is a scheduler node.
type Member struct {
	Name     string // unique in the cluster
	GRPCAddr string // where workers and clients reach it, host:port
	PeerAddr string // where other nodes reach it, host:port
	// Process is the name of its current process in locks and heartbeats; empty from a node that does not send
	// it.
	Process string
	// Withdrawn: the member is alive, but should hold no shards, because it could not keep their locks. If all
	// members are, none is left out.
	Withdrawn bool
	// UnreachablePrimaries is how many primaries of Redis have not answered it for long; -1 from a node that does not
	// send it.
	UnreachablePrimaries int
}

// View is the live members as one node sees them. It is not changed once made.
type View struct {
	Version uint64   // grows with each change that this node saw
	Members []Member // sorted by Name, each name once
	Self    string   // this node's name
}

// NewView sorts the members. Of two with one name it keeps the first.
func NewView(version uint64, self string, members []Member) View {
	sorted := slices.Clone(members)
	slices.SortStableFunc(sorted, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	sorted = slices.CompactFunc(sorted, func(a, b Member) bool { return a.Name == b.Name })
	return View{Version: version, Members: sorted, Self: self}
}

// Member finds a member by its name.
func (v View) Member(name string) (Member, bool) {
	i, ok := slices.BinarySearchFunc(v.Members, name, func(m Member, name string) int {
		return cmp.Compare(m.Name, name)
	})
	if !ok {
		return Member{}, false
	}
	return v.Members[i], true
}

// activeMembers returns the members that shards are given to.
func (v View) activeMembers() []Member {
	aside := func(m Member) bool { return m.Withdrawn }
	if !slices.ContainsFunc(v.Members, aside) {
		return v.Members
	}
	left := slices.DeleteFunc(slices.Clone(v.Members), aside)
	if len(left) == 0 {
		return v.Members
	}
	return left
}

// Assign returns the name of the owner of each of so many shards; empty names when
// there are no members. Each member gets as many as any other, or one more: the
// shards choose in their order, each the member with the greatest weight for it
// that has room.
func Assign(v View, shards int) []string {
	owners := make([]string, max(shards, 0))
	members := v.activeMembers()
	if len(members) == 0 {
		return owners
	}
	full, extra := len(owners)/len(members), len(owners)%len(members)
	names, held := make([]uint64, len(members)), make([]int, len(members))
	for i, m := range members {
		names[i] = nameHash(m.Name)
	}
	for shard := range owners {
		best, top := -1, uint64(0)
		for i, m := range members {
			if held[i] > full || held[i] == full && extra == 0 {
				continue
			}
			if w := memberWeight(names[i], shard); best < 0 || isHeavier(w, m.Name, top, members[best].Name) {
				best, top = i, w
			}
		}
		if held[best] == full {
			extra--
		}
		held[best]++
		owners[shard] = members[best].Name
	}
	return owners
}

// isHeavier compares weights; of equal ones the smaller name wins, so that the order of members never matters.
func isHeavier(w uint64, name string, top uint64, best string) bool {
	return w > top || (w == top && name < best)
}

// Diff compares two assignments: the shards that became self's, and those that
// no longer are. A shard that one of them lacks has no owner there.
func Diff(before, after []string, self string) (gained, lost []int) {
	for shard := range max(len(before), len(after)) {
		was, is := ownedBy(before, shard, self), ownedBy(after, shard, self)
		switch {
		case is && !was:
			gained = append(gained, shard)
		case was && !is:
			lost = append(lost, shard)
		}
	}
	return gained, lost
}

func ownedBy(owners []string, shard int, self string) bool {
	return shard < len(owners) && owners[shard] == self
}
