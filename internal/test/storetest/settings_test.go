package storetest_test

import (
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// TestSettingsChangeOfOpenStore makes a server unsafe after it was opened, in ways
// that lose jobs: the next check reports it, and reports nothing when all is right again.
func TestSettingsChangeOfOpenStore(t *testing.T) {
	server := redistest.Start(t, redistest.WithAOF("no"))
	w := storetest.NewWorld(t, server.Client(), asOptions(t, server.URL()), func(o *redisstore.Options) { o.Durability = conn.DurabilityLocal })
	set := func(name, value string) {
		t.Helper()
		if err := server.Client().ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	look := func() conn.Report {
		t.Helper()
		report, err := w.Store.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	for _, tt := range []struct{ name, bad, good, code string }{
		{"maxmemory-policy", "allkeys-lru", "noeviction", "eviction"},
		{"appendonly", "no", "yes", "durability"},
	} {
		set(tt.name, tt.bad)
		if r := look(); severityOf(r, tt.code) != conn.Fatal {
			t.Errorf("%s %s: %+v", tt.name, tt.bad, r.Findings)
		}
		set(tt.name, tt.good)
		for _, f := range look().Findings {
			// What the version of this server is known for does not depend on settings.
			if f.Severity > conn.Info && !strings.Contains(f.Text, "replica") && f.Code != "lua_cve" {
				t.Errorf("%s %s: %+v", tt.name, tt.good, f)
			}
		}
	}
}
