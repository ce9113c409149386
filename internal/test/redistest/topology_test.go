package redistest

import (
	"context"
	"strings"
	"testing"
)

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t, 2, 3, 2, WithMinReplicas(1, 10))
	ctx := t.Context()
	if got, want := s.MasterAddr(), s.Nodes()[0].Addr(); got != want {
		t.Fatalf("master %s, want %s", got, want)
	}
	if len(s.SentinelAddrs()) != 3 {
		t.Fatalf("sentinels: %v", s.SentinelAddrs())
	}
	c := s.Client()
	if err := c.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n := c.Wait(ctx, 2, 0).Val(); n != 2 {
		t.Fatalf("%d replicas have the write", n)
	}
	old := s.KillMaster()
	now := s.WaitFailover(old)
	if now == old || s.MasterAddr() != now {
		t.Fatalf("old %s, new %s, agreed %s", old, now, s.MasterAddr())
	}
	if got := s.Master().Client().Get(ctx, "k").Val(); got != "v" {
		t.Fatalf("the new master has %q", got)
	}
}

func TestSentinelWithPassword(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t, 1, 1, 1, WithPassword("pw"))
	if err := s.Client().Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestMinReplicasRefusesWrites(t *testing.T) {
	s := Start(t, WithMinReplicas(1, 10))
	err := s.Client().Set(t.Context(), "k", "v", 0).Err()
	if err == nil || !strings.HasPrefix(err.Error(), "NOREPLICAS") {
		t.Fatalf("err = %v, want NOREPLICAS", err)
	}
}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, 1)
	ctx := t.Context()
	if len(c.Addrs()) != 6 || c.Master(0).Addr() != c.Addrs()[0] {
		t.Fatalf("addrs %v, first master %s", c.Addrs(), c.Master(0).Addr())
	}
	client := c.Client()
	for _, k := range []string{"a", "b", "c", "d", "e", "f"} {
		if err := client.Set(ctx, k, k, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	old := c.KillMaster(1)
	now := c.WaitFailover(old)
	if now == old || c.Master(1).Addr() != now {
		t.Fatalf("old %s, new %s, owner %s", old, now, c.Master(1).Addr())
	}
	c.Node(old).Restart()
	Eventually(t, topologyDeadline, "old master becomes a replica", func(ctx context.Context) error {
		return hasInfo(ctx, c.Node(old), "replication", "role:slave")
	})
}

func TestClusterOfOneWithoutReplicas(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 1, 0)
	if err := c.Client().Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestSlotOwner(t *testing.T) {
	const table = `a1 127.0.0.1:7000@17000 myself,master - 0 1 1 connected 0-99 5000
b2 127.0.0.1:7001@17001,host master - 0 2 2 connected 100-199 [300->-a1]
c3 127.0.0.1:7002@17002 slave a1 0 3 3 connected
`
	for slot, want := range map[int]string{
		0: "127.0.0.1:7000", 99: "127.0.0.1:7000", 5000: "127.0.0.1:7000",
		100: "127.0.0.1:7001", 199: "127.0.0.1:7001", 200: "", 300: "",
	} {
		if got := slotOwner(table, slot); got != want {
			t.Errorf("slot %d: %q, want %q", slot, got, want)
		}
	}
}
