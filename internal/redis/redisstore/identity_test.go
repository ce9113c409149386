package redisstore

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/runner"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestKeyspaceHasOneIdentity: all processes of a keyspace know the same, also where a previous
// version has created it, and it never changes.
func TestKeyspaceHasOneIdentity(t *testing.T) {
	server := redistest.Start(t)
	open := func(prefix string) *Store {
		t.Helper()
		client, err := conn.NewClient(conn.ClientOptions{URL: server.URL()})
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
	if err := a.client.HDel(t.Context(), runner.KeyspaceKey("one"), identityField).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Check(t.Context()); err != nil || a.Identity() != first {
		t.Errorf("a missing id makes it %q, %v", a.Identity(), err)
	}
	renewed := open("one").Identity()
	report, err := a.Check(t.Context())
	found := slices.ContainsFunc(report.Findings, func(f conn.Finding) bool {
		return f.Code == "keyspace" && f.Severity == conn.Fatal && strings.Contains(f.Text, "another id")
	})
	if err != nil || !found || a.Identity() != first || renewed == first || renewed == "" {
		t.Errorf("a keyspace that was made again: id %q, opened with %q, made again with %q: %+v (%v)", a.Identity(), first, renewed, report.Findings, err)
	}
	if err := a.CheckSchema(t.Context()); !errors.Is(err, rediserr.ErrKeyspaceGone) {
		t.Errorf("the small look says %v", err)
	}
}
