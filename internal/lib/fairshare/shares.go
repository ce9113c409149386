// Package fairshare divides the places of a table among namespaces and identities, so that none
// of them takes the places of all others.
//
// Whoever holds places may take another one while those that are free are more than a
// multiple of what it holds. So one namespace alone gets half of a table with factor 1, a
// quarter with factor 3; several get equal parts; and a newcomer gets a place for as long as
// there is one. The rule needs no list of who there might be, and takes nothing away from
// those who hold places.
package fairshare

// Fits reports whether whoever holds some places of a table may take one more, when so many
// places are free. With factor f one holder alone gets 1/(f+1) of the table.
func Fits(held, free, factor int) bool { return free > 0 && held*factor < free }

// Holder is who takes a place. An empty name is not bounded: nobody could be told apart by it.
type Holder struct {
	Namespace, Identity string
	// Admin may administer the cluster. It may also take the places that are kept for
	// administrators, and the share of a namespace does not bound it.
	Admin bool
}

// Limits of a [Table]. Factors are those of [Fits]; 0 is no bound but the number of places.
type Limits struct {
	Places              int
	Kept                int // of the places, for cluster administrators only
	Namespace, Identity int // factors
}

// Table counts who holds how many places. It is not safe for concurrent use.
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

// Used is how many places are taken.
func (t *Table) Used() int { return t.used }

// Take takes a place if the shares of the holder leave one. Who got it has to Give it back.
func (t *Table) Take(h Holder) bool {
	free := t.limits.Places - t.used
	if !h.Admin {
		free -= t.limits.Kept
		if !Fits(held(t.byNamespace, h.Namespace), free, t.limits.Namespace) {
			return false
		}
	}
	if !Fits(held(t.byIdentity, h.Identity), free, t.limits.Identity) {
		return false
	}
	t.add(h, 1)
	return true
}

// Give gives a place back that the holder took.
func (t *Table) Give(h Holder) { t.add(h, -1) }

func (t *Table) add(h Holder, n int) {
	t.used += n
	count(t.byNamespace, h.Namespace, n)
	count(t.byIdentity, h.Identity, n)
}

func held(by map[string]int, name string) int {
	if name == "" {
		return 0
	}
	return by[name]
}

func count(by map[string]int, name string, n int) {
	if name == "" {
		return
	}
	if by[name] += n; by[name] <= 0 {
		delete(by, name)
	}
}

// Pick picks n of all, as many of each group as there are, in the order given: of groups
// with fewer nothing is left out for the sake of those with more.
func Pick[T any](all []T, n int, group func(T) string) []T {
	if len(all) <= n {
		return all
	}
	groups := map[string][]T{}
	var names []string // in the order of their first ones
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
