package redistest

import (
	"fmt"
	"testing"
)

func TestMoveSlot(t *testing.T) {
	c := StartCluster(t, 2, 0)
	client := c.Client()
	slot := int(client.ClusterKeySlot(t.Context(), "{tag}").Val())
	home := c.Owner(slot)
	away := c.Master(0)
	if away == home {
		away = c.Master(1)
	}
	for i := range 10 {
		if err := client.Set(t.Context(), fmt.Sprintf("{tag}%d", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	moved := 0
	for _, to := range []*Server{away, home, home} {
		c.MoveSlot(slot, to, func() { moved++ })
		if got := c.Owner(slot); got != to {
			t.Fatalf("the slot is at %s, want %s", got.Addr(), to.Addr())
		}
		for i := range 10 {
			if got := client.Get(t.Context(), fmt.Sprintf("{tag}%d", i)).Val(); got != fmt.Sprint(i) {
				t.Errorf("key %d has %q", i, got)
			}
		}
	}
	if moved != 20 {
		t.Errorf("%d keys were moved, want 10 there and 10 back", moved)
	}
}
