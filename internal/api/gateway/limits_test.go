package gateway

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowRequest sends a request whose body does not end, until the test ends it.
func slowRequest(t *testing.T, url, token, part string) {
	t.Helper()
	body, write := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	var sending sync.WaitGroup
	sending.Go(func() {
		if resp, err := http.DefaultClient.Do(r); err == nil {
			resp.Body.Close()
		}
	})
	if _, err := io.WriteString(write, part); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { write.CloseWithError(io.ErrUnexpectedEOF); sending.Wait() })
}

// TestSlowBodiesKeepNobodyWaiting: bodies that do not arrive take no places of others.
func TestSlowBodiesKeepNobodyWaiting(t *testing.T) {
	n := newFakeNode(t)
	_, url := newTestGateway(t, n, Options{})
	for range 40 {
		slowRequest(t, url+"/v1/namespaces/default/jobs:plan", "bert", `{"documents":[`)
	}
	for range 8 {
		if a := send(t, "POST", url+"/v1/namespaces/default/jobs:plan", "anna", "{}"); a.code == 429 {
			t.Fatalf("a plan: %d %s", a.code, a.body)
		}
	}
}

// TestCallersWithoutRoleSendNoBodies: they are refused before their body is read.
func TestCallersWithoutRoleSendNoBodies(t *testing.T) {
	n := newFakeNode(t)
	g, url := newTestGateway(t, n, Options{})
	for range 20 {
		r, err := http.NewRequestWithContext(t.Context(), "POST", url+"/v1/namespaces/default/jobs", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		body, write := io.Pipe() // nothing is ever written
		r.Body = body
		r.Header.Set("Authorization", "Bearer norole")
		r.Header.Set("Expect", "100-continue")
		resp, err := http.DefaultClient.Do(r)
		if err != nil || resp.StatusCode != 403 {
			t.Fatalf("%v: %v", resp, err)
		}
		resp.Body.Close()
		write.Close()
	}
	send(t, "GET", url+"/v1/events", "norole", "").want(t, 403, "no role")
	if n := g.credentials.verifications.inUse(); n != 0 {
		t.Errorf("%d places of verifications are taken", n)
	}
}

// TestVerificationPlacesAreFreedWithTheAnswer: callers without a role whose calls go on keep no new caller out.
func TestVerificationPlacesAreFreedWithTheAnswer(t *testing.T) {
	n := newFakeNode(t)
	g, _ := newTestGateway(t, n, Options{})
	for range 2 * maxVerifications {
		cred, err := g.credentials.acquire(t.Context(), "norole", "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		defer g.credentials.release(cred)
	}
	cred, err := g.credentials.acquire(t.Context(), "anna", "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	g.credentials.release(cred)
}

// TestPlacesAreWaitedFor: who finds no place waits its turn, those of a full address keep no other waiting, and a wait
// ends.
func TestPlacesAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(8)
		var held []func()
		for range 2 {
			release, ok := p.take(t.Context(), "full")
			if !ok {
				t.Fatal("no place in an empty table")
			}
			held = append(held, release)
		}
		began := time.Now()
		if _, ok := p.take(t.Context(), "full"); ok || time.Since(began) != placeWait {
			t.Errorf("a third place of one address after %v: %v", time.Since(began), ok)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, ok := p.take(gone, "full"); ok {
			t.Error("a place for a request that has gone")
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			release, ok := p.take(t.Context(), "full")
			if !ok {
				t.Error("the waiter got no place")
			}
			release()
		})
		synctest.Wait()
		if _, ok := p.take(t.Context(), "other"); !ok {
			t.Error("a full address keeps another one waiting")
		}
		held[0]()
		held[0]()
		waiting.Wait()
		if n := p.inUse(); n != 2 {
			t.Errorf("%d places are taken, want 2", n)
		}
	})
}

// TestLimitsAreThoseOfTheIdentity: new tokens of one identity give it no more calls and streams.
func TestLimitsAreThoseOfTheIdentity(t *testing.T) {
	n := newFakeNode(t)
	n.sameIdentity = "jwt:sso:ann"
	g, _ := newTestGateway(t, n, Options{MaxCalls: 3, MaxWatches: 2})
	var calls, streams int
	for i := range 4 {
		cred, err := g.credentials.acquire(t.Context(), []string{"anna", "bert"}[i%2], "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		defer g.credentials.release(cred)
		if _, err := g.credentials.beginCall(t.Context(), cred, ""); err == nil {
			calls++
		}
		if _, err := g.credentials.beginWatch(cred); err == nil {
			streams++
		}
	}
	if calls != 3 || streams != 2 {
		t.Errorf("two tokens of an identity have %d calls and %d streams, want 3 and 2", calls, streams)
	}
	n.sameIdentity = ""
}

// TestAddressesBehindProxies: the address of a client is that which the last trusted proxy has seen.
func TestAddressesBehindProxies(t *testing.T) {
	proxies := trustedProxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for name, tt := range map[string]struct {
		remote    string
		forwarded []string
		want      string
	}{
		"a stranger who lies":    {"192.0.2.7:5", []string{"10.1.1.1"}, "192.0.2.7"},
		"one proxy":              {"10.1.1.1:5", []string{"192.0.2.7"}, "192.0.2.7"},
		"a client who lies":      {"10.1.1.1:5", []string{"1.2.3.4, 192.0.2.7"}, "192.0.2.7"},
		"two proxies":            {"10.1.1.1:5", []string{"1.2.3.4, 192.0.2.7", "10.2.2.2"}, "192.0.2.7"},
		"no header":              {"10.1.1.1:5", nil, "10.1.1.1"},
		"no address":             {"10.1.1.1:5", []string{"1.2.3.4, unknown"}, "10.1.1.1"},
		"proxies only":           {"10.1.1.1:5", []string{"10.3.3.3, 10.2.2.2"}, "10.3.3.3"},
		"a network of IPv6":      {"[fd00::1]:5", []string{"2001:db8:1:2:3:4:5:6"}, "2001:db8:1:2::/64"},
		"mapped addresses":       {"[::ffff:10.1.1.1]:5", []string{"::ffff:192.0.2.7"}, "192.0.2.7"},
		"an address with a port": {"10.1.1.1:5", []string{"192.0.2.7:1234"}, "192.0.2.7"},
		"with brackets and port": {"10.1.1.1:5", []string{"[2001:db8::1]:99"}, "2001:db8::/64"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = tt.remote
		for _, v := range tt.forwarded {
			r.Header.Add("X-Forwarded-For", v)
		}
		if got := proxies.remoteHost(r); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// TestTextThatGRPCCannotSend: it is refused by the gateway, and errors of parameters are readable.
func TestTextThatGRPCCannotSend(t *testing.T) {
	n := newFakeNode(t)
	_, url := newTestGateway(t, n, Options{})
	list := url + "/v1/namespaces/default/jobs"
	for _, path := range []string{url + "/v1/namespaces/default/jobs/a%ff", list + "?filter=%ff", list + "?labels[%ff]=a",
		list + "?colour=red", list + "?pageSize=many", url + "/v1/namespaces/a/events?parent=namespaces/b",
		url + "/v1/events?colour=red"} {
		a := send(t, "GET", path, "anna", "")
		if a.code != 400 || strings.Contains(a.body, "rpc error") {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	send(t, "GET", url+jobPath, "anna", "", "X-Request-Id", "a\xff").want(t, 400, "X-Request-Id")
	send(t, "GET", url+jobPath, "anna", "", "If-Match", "\"\xff\"").want(t, 400, "If-Match")
	send(t, "GET", url+jobPath, "anna", "", "Grpc-Timeout", "1n").want(t, 200, "")
}

// TestRefusalsAreCounted: a request that is refused for want of room is counted by its limit.
func TestRefusalsAreCounted(t *testing.T) {
	g, err := New(Options{Dial: func(string) (Connection, error) { return nil, fmt.Errorf("none") }})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	counted := map[string]bool{}
	g.credentials.refuse = func(reason string) { counted[reason] = true }
	who := &credential{hasRole: true, identity: &identityUse{calls: 64, watches: 32}}
	_, _ = g.credentials.beginCall(t.Context(), who, "")
	_, _ = g.credentials.beginWatch(who)
	if !counted["calls"] || !counted["event_streams"] {
		t.Errorf("counted are %v", counted)
	}
}

// TestUnverifiedRequestsLeaveConnectionsToOthers, also in a process with little memory.
func TestUnverifiedRequestsLeaveConnectionsToOthers(t *testing.T) {
	for _, limit := range []int64{1 << 20, 128 << 20, 512 << 20, 1 << 30, math.MaxInt64} {
		if n, connections := unverifiedFor(limit), connectionsFor(limit); n < 1 || n > connections/2 {
			t.Errorf("%d bytes: %d unverified requests take %d connections", limit, n, connections)
		}
	}
}
