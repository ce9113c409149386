package worker

import (
	"slices"
	"testing"
)

// TestLearnedAddressesReplaceConfiguredOnes: for each host in turn, until one fits.
func TestLearnedAddressesReplaceConfiguredOnes(t *testing.T) {
	o := Options{Addresses: []string{"dns:///fermata:7070", "fermata:8080", "[::1]:7070", "unix:///run/fermata",
		"dns://8.8.8.8/other"}}
	rs := newRoutes(o.Addresses)
	rs.addAdvertised([]string{"learnt:1"})
	for _, r := range rs.all {
		if r.configured && o.verifiedEndpoint(r) != "" {
			t.Errorf("%s stands for %s", r.address, o.verifiedEndpoint(r))
		}
	}
	r, got := rs.findRoute("learnt:1"), []string(nil)
	for range 5 {
		got = append(got, o.verifiedEndpoint(r))
		r.countFailure(r.retryAt, 0)
	}
	if want := []string{"fermata:7070", "[::1]:7070", "localhost", "other", "fermata:7070"}; !slices.Equal(got, want) {
		t.Errorf("it stands for %q, want %q", got, want)
	}
	if got := plainAddresses([]string{"a:1", "", "::::", "unix:///x:1", "dns:///a:1", "a:1/b"}); !slices.Equal(got,
		[]string{"a:1"}) {
		t.Errorf("of what nodes may say %q is tried", got)
	}
}
