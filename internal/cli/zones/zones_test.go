package zones_test

import (
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/fermata-io/fermata/internal/cli/zones"
)

// TestNamesAreZones: each name can be loaded, and common ones are there.
func TestNamesAreZones(t *testing.T) {
	all := zones.WithPrefix("")
	for _, name := range all {
		if _, err := time.LoadLocation(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"} {
		if !slices.Contains(all, name) {
			t.Errorf("%s is missing", name)
		}
	}
	if !slices.IsSorted(all) || len(all) < 400 {
		t.Errorf("%d names", len(all))
	}
	for prefix, want := range map[string][]string{
		"Europe/Ber": {"Europe/Berlin"}, "europe/ber": {"Europe/Berlin"}, "Nowhere": nil, "Europe/Berlin/x": nil,
	} {
		if got := zones.WithPrefix(prefix); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", prefix, got, want)
		}
	}
}
