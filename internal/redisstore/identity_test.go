package redisstore

import (
	"testing"

	"github.com/fermata-io/fermata/internal/redistest"
)

// TestKeyspaceHasOneIdentity: all processes of a keyspace know the same, also where a previous
// version has created it, and it never changes.
func TestKeyspaceHasOneIdentity(t *testing.T) {
	server := redistest.Start(t)
	open := func(prefix string) *Store {
		t.Helper()
		client, err := NewClient(ClientOptions{URL: server.URL()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		s, err := Open(t.Context(), Options{Client: client, Shards: 2, Prefix: prefix, AllowUnsafe: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a := open("one")
	first := a.Identity()
	if len(first) != 2*identityBytes {
		t.Fatalf("identity %q", first)
	}
	if again, other := open("one").Identity(), open("two").Identity(); again != first || other == first {
		t.Errorf("identities %q, %q and, of another keyspace, %q", first, again, other)
	}
	if err := a.client.HDel(t.Context(), keyspaceKey("one"), identityField).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Check(t.Context()); err != nil || a.Identity() != first {
		t.Errorf("a missing id makes it %q, %v", a.Identity(), err)
	}
	renewed := open("one").Identity()
	if _, err := a.Check(t.Context()); err != nil || a.Identity() != renewed || renewed == first || renewed == "" {
		t.Errorf("a keyspace that was made again: %q, want %q (%v)", a.Identity(), renewed, err)
	}
}
