package sharding_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"pgregory.net/rapid"
)

func members(n int) []sharding.Member {
	ms := make([]sharding.Member, n)
	for i := range ms {
		ms[i].Name = fmt.Sprintf("scheduler-%d", i)
		ms[i].GRPCAddr = fmt.Sprintf("10.0.0.%d:7700", i)
	}
	return ms
}

// Nodes of different versions must agree on owners.
func TestOwnersGolden(t *testing.T) {
	owners := sharding.Assign(sharding.NewView(1, "scheduler-0", members(3)), 16)
	for i, o := range owners {
		owners[i] = strings.TrimPrefix(o, "scheduler-")
	}
	if got, want := strings.Join(owners, ""), "1000020022121112"; got != want {
		t.Errorf("owners %s, want %s", got, want)
	}
}

// However many there are, before and after any one of them has gone.
func TestOwnersAreEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := drawMembers().Draw(t, "members")
		shards := rapid.SampledFrom([]int{1, 5, 16, 64, 256}).Draw(t, "shards")
		for gone := range len(ms) + 1 {
			left := slices.Delete(slices.Clone(ms), max(0, gone-1), gone)
			if len(left) == 0 {
				continue
			}
			count := map[string]int{}
			for _, owner := range sharding.Assign(sharding.NewView(1, "", left), shards) {
				count[owner]++
			}
			for _, m := range left {
				if n := count[m.Name]; n < shards/len(left) || n > (shards+len(left)-1)/len(left) {
					t.Fatalf("%s owns %d of %d shards among %d: %v", m.Name, n, shards, len(left), count)
				}
			}
		}
	})
}

// After a take-over: 64 shards over what is left of three to five nodes, to a tenth
// of the average.
func TestOwnersAreEvenAfterATakeover(t *testing.T) {
	for n := 3; n <= 5; n++ {
		for gone := range n {
			left := slices.Delete(members(n), gone, gone+1)
			count := map[string]int{}
			for _, owner := range sharding.Assign(sharding.NewView(1, "", left), 64) {
				count[owner]++
			}
			part := 64 / float64(n-1)
			for name, shards := range count {
				if off := math.Abs(float64(shards)/part - 1); off > 0.1 {
					t.Errorf("%d nodes without scheduler-%d: %s owns %d, %.0f %% off", n, gone, name, shards, off*100)
				}
			}
		}
	}
}

// The defaults of the number of shards: with 16 no node of up to eight has a third more than the mean, with 64 no node
// of up to 16 has a quarter more.
func TestDefaultShardsAreEvenEnough(t *testing.T) {
	for _, c := range []struct {
		shards, nodes int
		most          float64
	}{{16, 4, 1.13}, {16, 8, 1.32}, {64, 8, 1.1}, {64, 16, 1.22}} {
		for n := 1; n <= c.nodes; n++ {
			count := map[string]int{}
			for _, owner := range sharding.Assign(sharding.NewView(1, "", members(n)), c.shards) {
				count[owner]++
			}
			largest := slices.Max(slices.Collect(maps.Values(count)))
			if off := float64(largest*n) / float64(c.shards); off > c.most || len(count) != n {
				t.Errorf("%d of %d nodes own %d shards, one of them %d: %.2f x the mean, want %.2f at most",
					len(count), n, c.shards, largest, off, c.most)
			}
		}
	}
}

func drawMembers() *rapid.Generator[[]sharding.Member] {
	return rapid.Custom(func(t *rapid.T) []sharding.Member {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9.-]{1,12}`), 1, 12, rapid.ID[string]).Draw(t, "names")
		ms := make([]sharding.Member, len(names))
		for i, name := range names {
			ms[i].Name = name
		}
		return ms
	})
}

// The order in which members are listed does not matter, sorted or not, nor who
// looks.
func TestOwnersDependOnMembersOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := drawMembers().Draw(t, "members")
		owners := sharding.Assign(sharding.NewView(1, ms[0].Name, ms), 32)
		shuffled := rapid.Permutation(ms).Draw(t, "shuffled")
		unsorted := sharding.View{Members: shuffled, Self: "other"}
		if again := sharding.Assign(unsorted, 32); !slices.Equal(again, owners) {
			t.Fatalf("%v, then %v", owners, again)
		}
	})
}

// A member that comes or goes moves little beside its own part.
func TestOwnersMoveLittle(t *testing.T) {
	const samples = 200
	for _, c := range []struct {
		members, shards int
		most            float64 // shards moved between others, on the average
	}{{3, 64, 2}, {4, 64, 3}, {5, 64, 4}, {8, 64, 6}, {3, 256, 4}, {8, 256, 11}} {
		moved := 0
		for sample := range samples {
			ms := make([]sharding.Member, c.members)
			for i := range ms {
				ms[i].Name = fmt.Sprintf("node-%d-%d", sample, i)
			}
			gone := ms[sample%c.members].Name
			rest := slices.DeleteFunc(slices.Clone(ms), func(m sharding.Member) bool { return m.Name == gone })
			with := sharding.Assign(sharding.NewView(1, "", ms), c.shards)
			without := sharding.Assign(sharding.NewView(2, "", rest), c.shards)
			for shard := range with {
				if without[shard] == gone {
					t.Fatalf("shard %d belongs to a member that left", shard)
				}
				if with[shard] != gone && with[shard] != without[shard] {
					moved++
				}
			}
		}
		if mean := float64(moved) / samples; mean > c.most {
			t.Errorf("%d members, %d shards: %.1f move between others, want %.0f at most", c.members, c.shards, mean, c.most)
		}
	}
}

func TestEmptyView(t *testing.T) {
	var v sharding.View
	if got := sharding.Assign(v, 2); !slices.Equal(got, []string{"", ""}) {
		t.Errorf("%q", got)
	}
	if got := sharding.Assign(sharding.NewView(1, "", members(1)), -1); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

func TestNewView(t *testing.T) {
	given := []sharding.Member{{Name: "b", GRPCAddr: "1"}, {Name: "a"}, {Name: "b", GRPCAddr: "2"}}
	v := sharding.NewView(7, "a", given)
	want := []sharding.Member{{Name: "a"}, {Name: "b", GRPCAddr: "1"}}
	if !slices.Equal(v.Members, want) || v.Version != 7 || v.Self != "a" {
		t.Errorf("%+v", v)
	}
	if given[0].Name != "b" {
		t.Error("the caller's slice was sorted")
	}
	if m, ok := v.Member("b"); !ok || m.GRPCAddr != "1" {
		t.Errorf("%+v %v", m, ok)
	}
	if _, ok := v.Member("c"); ok {
		t.Error("found a stranger")
	}
}

func TestDiff(t *testing.T) {
	for _, c := range []struct{ before, after, gained, lost string }{
		{"", "", "[]", "[]"},
		{"a a b", "a b a", "[2]", "[1]"},
		{"", "a b a", "[0 2]", "[]"},
		{"a b a", "", "[]", "[0 2]"},
		{"a b", "a b a", "[2]", "[]"},
	} {
		gained, lost := sharding.Diff(strings.Fields(c.before), strings.Fields(c.after), "a")
		if fmt.Sprint(gained) != c.gained || fmt.Sprint(lost) != c.lost {
			t.Errorf("%q to %q: gained %v, lost %v", c.before, c.after, gained, lost)
		}
	}
}

func BenchmarkAssign(b *testing.B) {
	v := sharding.NewView(1, "", members(10))
	for b.Loop() {
		sharding.Assign(v, 256)
	}
}

func TestWithdrawnMembersOwnNothing(t *testing.T) {
	all := []sharding.Member{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	whole := sharding.NewView(1, "a", all)
	without := sharding.NewView(1, "a", []sharding.Member{{Name: "a"}, {Name: "c"}})
	all[1].Withdrawn = true
	one := sharding.NewView(1, "a", all)
	if got, want := sharding.Assign(one, 64), sharding.Assign(without, 64); !slices.Equal(got, want) {
		t.Errorf("b stands aside:\n%v, want as without it\n%v", got, want)
	}
	all[0].Withdrawn, all[2].Withdrawn = true, true
	if got, want := sharding.Assign(sharding.NewView(1, "a", all), 64), sharding.Assign(whole, 64); !slices.Equal(got, want) {
		t.Errorf("all stand aside:\n%v, want as if none did\n%v", got, want)
	}
}
