package worker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// order takes routes until there is none that may be tried.
func order(rs *routes, now time.Time, avoid string) []string {
	var got []string
	for r, _ := rs.claimNext(now, avoid); r != nil; r, _ = rs.claimNext(now, avoid) {
		got = append(got, r.address)
	}
	for _, r := range rs.all {
		rs.markDialEnded(r)
	}
	return got
}

func TestRoutesAreTriedByClass(t *testing.T) {
	now := time.Now()
	rs := newRoutes([]string{"configured"})
	rs.replaceAdvertised([]string{"last", "worked", "new", "nowhere", "leaving"})
	rs.markWelcomed(rs.findRoute("worked"), now)
	rs.markWelcomed(rs.findRoute("last"), now)
	rs.markFailed("nowhere", now, 0)
	now = now.Add(2 * unreachedBase)
	if got, want := order(rs, now, "leaving"), []string{"last", "configured", "worked", "new",
		"nowhere"}; !slices.Equal(got, want) {
		t.Errorf("tried %v, want %v", got, want)
	}
	// A node that drains names those that are left.
	rs.preferAddresses([]string{"new", "nowhere"})
	if got, want := order(rs, now, "last"), []string{"new", "configured", "worked", "leaving",
		"nowhere"}; !slices.Equal(got, want) {
		t.Errorf("tried %v, want %v", got, want)
	}
	// The session that stands is left for the same address where no other leads anywhere.
	rs = newRoutes([]string{"only"})
	rs.replaceAdvertised([]string{"nowhere"})
	rs.markFailed("nowhere", now, 0)
	if got, want := order(rs, now, "only"), []string{"only"}; !slices.Equal(got, want) {
		t.Errorf("tried %v, want %v", got, want)
	}
	// Of equal ones, those that have not failed.
	rs = newRoutes([]string{"a", "b", "c"})
	rs.markFailed("a", now, 0)
	rs.markFailed("b", now, 0)
	if got := order(rs, now.Add(time.Minute), ""); got[0] != "c" {
		t.Errorf("tried %v, want c first", got)
	}
}

func TestUnreachedRoutesAreTriedRarely(t *testing.T) {
	now := time.Now()
	rs := newRoutes([]string{"configured"})
	var advertised []string
	for i := range 8 {
		advertised = append(advertised, fmt.Sprint("nowhere-", i))
	}
	rs.replaceAdvertised(advertised)
	for _, address := range advertised {
		rs.markFailed(address, now, 0)
	}
	rs.markFailed("configured", now, 0)
	if got := order(rs, now.Add(backoffBase), ""); !slices.Equal(got, []string{"configured"}) {
		t.Errorf("after %v: %v, want the configured address alone", backoffBase, got)
	}
	// However many there are, they leave room for others.
	if got := order(rs, now.Add(time.Hour), ""); len(got) != 1+maxUnverifiedDials || got[0] != "configured" {
		t.Errorf("after an hour: %v at once, want the configured address and %d others", got, maxUnverifiedDials)
	}
	// One that has answered, be it with a refusal, is one like others.
	rs.markAnswered(rs.findRoute("nowhere-3"))
	rs.markFailed("nowhere-3", now, 0)
	if got := order(rs, now.Add(backoffBase), ""); !slices.Contains(got, "nowhere-3") {
		t.Errorf("tried %v, want an address that has answered among them", got)
	}
}

func TestPausesGrowWithTheTimeWithoutANode(t *testing.T) {
	now := time.Now()
	for _, c := range []struct{ without, least, most time.Duration }{
		{0, backoffBase / 2, backoffBase},
		{400 * time.Millisecond, backoffBase / 2, backoffBase},
		{4 * time.Second, time.Second / 2, time.Second},
		{time.Hour, backoffMax / 2, backoffMax},
	} {
		wantPauses(t, (*routes).markFailed, now, c.without, c.least, c.most)
	}
}

// wantPauses marks an address again and again, and checks how long after each time it may be tried.
func wantPauses(t *testing.T, mark func(rs *routes, address string, now time.Time, without time.Duration), now time.Time,
	without, least, most time.Duration) {
	t.Helper()
	rs := newRoutes([]string{"a"})
	for range 100 {
		mark(rs, "a", now, without)
		if r, at := rs.claimNext(now, ""); r != nil || at.Sub(now) < least || at.Sub(now) > most {
			t.Fatalf("%v without a node: tried again after %v, want %v to %v", without, at.Sub(now), least, most)
		}
	}
}

func TestPausesAfterARefusedCredentialAreLong(t *testing.T) {
	now := time.Now()
	for _, c := range []struct{ without, least, most time.Duration }{
		{0, refusedBase / 2, refusedBase},
		{4 * time.Second, 2 * time.Second, 4 * time.Second},
		{time.Hour, backoffMax / 2, backoffMax},
	} {
		wantPauses(t, (*routes).markRefused, now, c.without, c.least, c.most)
	}
	for code, want := range map[codes.Code]bool{codes.Unauthenticated: true, codes.PermissionDenied: true,
		codes.Unavailable: false, codes.ResourceExhausted: false} {
		if got := isCallerRefusal(fmt.Errorf("hello: %w", status.Error(code, "x"))); got != want {
			t.Errorf("%v: got %v", code, got)
		}
	}
}

func TestAdvertisedRoutesAreReplaced(t *testing.T) {
	now := time.Now()
	rs := newRoutes([]string{"configured"})
	rs.replaceAdvertised([]string{"a", "b"})
	rs.markWelcomed(rs.findRoute("a"), now)
	rs.replaceAdvertised([]string{"c"}) // a node lists the others
	got := order(rs, now, "")
	slices.Sort(got)
	if want := []string{"a", "c", "configured"}; !slices.Equal(got, want) {
		t.Errorf("knows %v, want %v", got, want)
	}
	rs.replaceAdvertised(nil) // which says nothing
	if got := order(rs, now, ""); len(got) != 3 {
		t.Errorf("knows %v, want three", got)
	}
	var many []string
	for i := range 3 * maxAdvertised {
		many = append(many, fmt.Sprint("n", i))
	}
	rs.replaceAdvertised(many)
	if len(rs.all) > maxAdvertised+1 {
		t.Errorf("remembers %d addresses", len(rs.all))
	}
	rs.preferAddresses(many)
	if len(rs.all) > maxAdvertised+1 {
		t.Errorf("remembers %d addresses", len(rs.all))
	}
}

// A node that welcomes a worker and ends the stream at once is no better than one that
// refuses it.
func TestSessionsThatEndAtOnceAreFailures(t *testing.T) {
	now := time.Now()
	rs := newRoutes([]string{"flaps"})
	rs.replaceAdvertised([]string{"other"})
	for n := range maxBriefSessions {
		if got := order(rs, now, ""); got[0] != "flaps" {
			t.Errorf("after %d brief sessions %v", n, got)
		}
		rs.markWelcomed(rs.findRoute("flaps"), now)
		rs.markEnded("flaps", now, true, 0)
	}
	if got := order(rs, now, ""); !slices.Equal(got, []string{"other"}) {
		t.Errorf("after %d brief sessions %v, want the other address", maxBriefSessions, got)
	}
	rs.markWelcomed(rs.findRoute("flaps"), now)
	rs.markEnded("flaps", now, false, 0)
	rs.markWelcomed(rs.findRoute("flaps"), now)
	rs.markEnded("flaps", now, true, 0)
	if got := order(rs, now, ""); got[0] != "flaps" {
		t.Errorf("after a long session %v", got)
	}
}
