package ring

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
	// Aside: it lives, but should hold no shards, because it could not keep their
	// locks. When all members say so, nobody is left out.
	Aside bool
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

// Owner is the member that should hold the shard; false when there are no
// members.
func (v View) Owner(shard int) (Member, bool) {
	if len(v.Members) == 0 {
		return Member{}, false
	}
	standing := v.standing()
	best, top := 0, uint64(0)
	for i, m := range standing {
		if w := weight(nameHash(m.Name), shard); i == 0 || heavier(w, m.Name, top, standing[best].Name) {
			best, top = i, w
		}
	}
	return standing[best], true
}

// standing are the members that shards are given to.
func (v View) standing() []Member {
	aside := func(m Member) bool { return m.Aside }
	if !slices.ContainsFunc(v.Members, aside) {
		return v.Members
	}
	left := slices.DeleteFunc(slices.Clone(v.Members), aside)
	if len(left) == 0 {
		return v.Members
	}
	return left
}

// Assign is the name of the owner of each of so many shards; empty names when
// there are no members. It agrees with Owner.
func Assign(v View, shards int) []string {
	owners := make([]string, max(shards, 0))
	top := make([]uint64, len(owners))
	for i, m := range v.standing() {
		name := nameHash(m.Name)
		for shard := range owners {
			if w := weight(name, shard); i == 0 || heavier(w, m.Name, top[shard], owners[shard]) {
				owners[shard], top[shard] = m.Name, w
			}
		}
	}
	return owners
}

// heavier compares weights; of equal ones the smaller name wins, so that the
// order of members never matters.
func heavier(w uint64, name string, top uint64, best string) bool {
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
