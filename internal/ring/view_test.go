package ring_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/ring"
	"pgregory.net/rapid"
)

func members(n int) []ring.Member {
	ms := make([]ring.Member, n)
	for i := range ms {
		ms[i].Name = fmt.Sprintf("scheduler-%d", i)
		ms[i].GRPCAddr = fmt.Sprintf("10.0.0.%d:7700", i)
	}
	return ms
}

// Nodes of different versions must agree on owners.
func TestOwnersGolden(t *testing.T) {
	owners := ring.Assign(ring.NewView(1, "scheduler-0", members(3)), 16)
	for i, o := range owners {
		owners[i] = strings.TrimPrefix(o, "scheduler-")
	}
	if got, want := strings.Join(owners, ""), "1000020022101112"; got != want {
		t.Errorf("owners %s, want %s", got, want)
	}
}

func TestOwnersAreBalanced(t *testing.T) {
	for _, c := range []struct{ members, shards, low, high int }{
		{1, 64, 64, 64},
		{2, 64, 20, 44},
		{3, 64, 12, 31},
		{8, 256, 18, 48},
		{10, 100_000, 9_600, 10_400},
		{100, 100_000, 880, 1_120},
	} {
		count := map[string]int{}
		for _, owner := range ring.Assign(ring.NewView(1, "", members(c.members)), c.shards) {
			count[owner]++
		}
		if len(count) != c.members {
			t.Errorf("%d of %d members own something of %d shards", len(count), c.members, c.shards)
		}
		for name, n := range count {
			if n < c.low || n > c.high {
				t.Errorf("%s owns %d of %d shards among %d, want %d to %d", name, n, c.shards, c.members, c.low, c.high)
			}
		}
	}
}

func drawMembers() *rapid.Generator[[]ring.Member] {
	return rapid.Custom(func(t *rapid.T) []ring.Member {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9.-]{1,12}`), 1, 12, rapid.ID[string]).Draw(t, "names")
		ms := make([]ring.Member, len(names))
		for i, name := range names {
			ms[i].Name = name
		}
		return ms
	})
}

// The order in which members are listed does not matter, sorted or not; Owner
// and Assign agree; who looks does not matter.
func TestOwnersDependOnMembersOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := drawMembers().Draw(t, "members")
		owners := ring.Assign(ring.NewView(1, ms[0].Name, ms), 32)
		shuffled := rapid.Permutation(ms).Draw(t, "shuffled")
		unsorted := ring.View{Members: shuffled, Self: "other"}
		if again := ring.Assign(unsorted, 32); !slices.Equal(again, owners) {
			t.Fatalf("%v, then %v", owners, again)
		}
		for shard, want := range owners {
			if got, ok := unsorted.Owner(shard); !ok || got.Name != want {
				t.Fatalf("shard %d: Owner %v, Assign %v", shard, got.Name, want)
			}
		}
	})
}

// A member that leaves gives its shards away and nothing else moves; one that
// comes takes shards and nothing else moves.
func TestOwnersMoveLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := drawMembers().Draw(t, "members")
		gone := ms[rapid.IntRange(0, len(ms)-1).Draw(t, "gone")].Name
		rest := slices.DeleteFunc(slices.Clone(ms), func(m ring.Member) bool { return m.Name == gone })
		with := ring.Assign(ring.NewView(1, "", ms), 128)
		without := ring.Assign(ring.NewView(2, "", rest), 128)
		for shard := range with {
			if with[shard] == gone {
				if without[shard] == gone {
					t.Fatalf("shard %d belongs to a member that left", shard)
				}
			} else if with[shard] != without[shard] {
				t.Fatalf("shard %d moves from %s to %s as %s leaves", shard, with[shard], without[shard], gone)
			}
		}
	})
}

func TestOwnersShareOfAMove(t *testing.T) {
	const shards = 10_000
	before := ring.Assign(ring.NewView(1, "", members(9)), shards)
	after := ring.Assign(ring.NewView(2, "", members(10)), shards)
	gained, lost := ring.Diff(before, after, "scheduler-9")
	if len(lost) != 0 || len(gained) < 900 || len(gained) > 1100 {
		t.Errorf("the tenth member gains %d and loses %d of %d", len(gained), len(lost), shards)
	}
}

func TestEmptyView(t *testing.T) {
	var v ring.View
	if _, ok := v.Owner(0); ok {
		t.Error("an owner without members")
	}
	if got := ring.Assign(v, 2); !slices.Equal(got, []string{"", ""}) {
		t.Errorf("%q", got)
	}
	if got := ring.Assign(ring.NewView(1, "", members(1)), -1); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

func TestNewView(t *testing.T) {
	given := []ring.Member{{Name: "b", GRPCAddr: "1"}, {Name: "a"}, {Name: "b", GRPCAddr: "2"}}
	v := ring.NewView(7, "a", given)
	want := []ring.Member{{Name: "a"}, {Name: "b", GRPCAddr: "1"}}
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
		gained, lost := ring.Diff(strings.Fields(c.before), strings.Fields(c.after), "a")
		if fmt.Sprint(gained) != c.gained || fmt.Sprint(lost) != c.lost {
			t.Errorf("%q to %q: gained %v, lost %v", c.before, c.after, gained, lost)
		}
	}
}

func BenchmarkAssign(b *testing.B) {
	v := ring.NewView(1, "", members(10))
	for b.Loop() {
		ring.Assign(v, 256)
	}
}

func TestMembersThatStandAside(t *testing.T) {
	all := []ring.Member{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	whole := ring.NewView(1, "a", all)
	without := ring.NewView(1, "a", []ring.Member{{Name: "a"}, {Name: "c"}})
	all[1].Aside = true
	one := ring.NewView(1, "a", all)
	if got, want := ring.Assign(one, 64), ring.Assign(without, 64); !slices.Equal(got, want) {
		t.Errorf("b stands aside:\n%v, want as without it\n%v", got, want)
	}
	for shard, owner := range ring.Assign(one, 64) {
		if m, ok := one.Owner(shard); !ok || m.Name != owner {
			t.Errorf("shard %d: %v, want %s", shard, m, owner)
		}
	}
	all[0].Aside, all[2].Aside = true, true
	if got, want := ring.Assign(ring.NewView(1, "a", all), 64), ring.Assign(whole, 64); !slices.Equal(got, want) {
		t.Errorf("all stand aside:\n%v, want as if none did\n%v", got, want)
	}
}
