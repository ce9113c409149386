// Package fairshare divides the slots of a table among namespaces and identities, so that none
// of them takes the slots of all others.
//
// A holder may take another slot while the free slots are more than a multiple of those that
// it holds. One namespace alone gets half of a table with factor 1, a quarter with factor 3.
// Several get equal parts, and a newcomer gets a slot while there is a free one. The rule needs
// no list of possible holders, and never takes slots away.
package fairshare

// MayTake reports whether a holder of held slots may take one more. With factor f one holder alone gets 1/(f+1) of
// the table.
func MayTake(held, free, factor int) bool { return free > 0 && held*factor < free }

// Holder identifies the holder of a slot. An empty name has no limit, because it does not distinguish holders.
type Holder struct {
	Namespace, Identity string
	// Admin may administer the cluster. It may also take the slots that are reserved for administrators, and the
	// share of a namespace does not limit it.
	Admin bool
}

// Limits of a [Table]. Factors are those of [MayTake]; 0: only the number of slots limits.
type Limits struct {
	Places              int
	Kept                int // reserved for cluster administrators
	Namespace, Identity int // factors
}

// Table counts the slots by holder. It is not safe for concurrent use.
type Table struct {
	limits      Limits
	used        int
	byNamespace map[string]int
	byIdentity  map[string]int
}

// New makes a table.
func New(l Limits) *Table {
	return &Table{limits: l, byNamespace: map[string]int{}, byIdentity: map[string]int{}}
}

// TakenSlots is the number of taken slots.
func (t *Table) TakenSlots() int { return t.used }

// Acquire takes a slot if the shares of the holder allow it. The holder returns it with Release.
func (t *Table) Acquire(h Holder) bool { return t.AcquireMany(h, 1) }

// AcquireMany takes n slots if the shares of the holder allow the last of them. The holder returns them with
// ReleaseMany.
func (t *Table) AcquireMany(h Holder, n int) bool {
	before := n - 1 // slots that are taken before the last one
	free := t.limits.Places - t.used - before
	if !h.Admin {
		free -= t.limits.Kept
		if !MayTake(countWith(t.byNamespace, h.Namespace, before), free, t.limits.Namespace) {
			return false
		}
	}
	if !MayTake(countWith(t.byIdentity, h.Identity, before), free, t.limits.Identity) {
		return false
	}
	t.addPlaces(h, n)
	return true
}

// Release returns a slot that the holder took.
func (t *Table) Release(h Holder) { t.ReleaseMany(h, 1) }

// ReleaseMany returns n slots that the holder took.
func (t *Table) ReleaseMany(h Holder, n int) { t.addPlaces(h, -n) }

func (t *Table) addPlaces(h Holder, n int) {
	t.used += n
	addCount(t.byNamespace, h.Namespace, n)
	addCount(t.byIdentity, h.Identity, n)
}

// countWith is what a name has, and more; an empty one has nothing.
func countWith(by map[string]int, name string, more int) int {
	if name == "" {
		return 0
	}
	return by[name] + more
}

func addCount(by map[string]int, name string, n int) {
	if name == "" {
		return
	}
	by[name] += n
	if by[name] <= 0 {
		delete(by, name)
	}
}

// Pick picks n of all items, balanced over the groups, in the given order: no item of a smaller group is omitted in
// favour of a larger one.
func Pick[T any](all []T, n int, group func(T) string) []T {
	if len(all) <= n {
		return all
	}
	groups := map[string][]T{}
	var names []string // in the order of their first items
	for _, t := range all {
		name := group(t)
		if groups[name] == nil {
			names = append(names, name)
		}
		groups[name] = append(groups[name], t)
	}
	picked := make([]T, 0, n)
	for round := 0; len(picked) < n; round++ {
		for _, name := range names {
			if list := groups[name]; round < len(list) && len(picked) < n {
				picked = append(picked, list[round])
			}
		}
	}
	return picked
}
