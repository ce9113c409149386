package gateway

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestCallersDoNotShareConnections: nodes judge a connection by its caller, so that each token needs its own.
func TestCallersDoNotShareConnections(t *testing.T) {
	n := newFakeNode(t)
	_, url := newTestGateway(t, n, Options{})
	var callers sync.WaitGroup
	for i := range 30 {
		callers.Go(func() {
			token := []string{"anna", "bert", "stranger"}[i%3]
			want := map[string]int{"anna": 200, "bert": 200, "stranger": 401}[token]
			if a := send(t, "GET", url+jobPath, token, ""); a.code != want && a.code != 429 {
				t.Errorf("%s: status %d", token, a.code)
			}
		})
	}
	callers.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mixed {
		t.Error("a connection carried the calls of two callers")
	}
	if n.verified > 2+10 {
		t.Errorf("%d verifications: one for each good token, and at most one for each request with a bad one", n.verified)
	}
}

func TestRejectedCredentialIsForgotten(t *testing.T) {
	n := newFakeNode(t)
	g, url := newTestGateway(t, n, Options{})
	send(t, "GET", url+jobPath, "anna", "").want(t, 200, "")
	if got := g.credentials.connected(); got != 1 {
		t.Errorf("%v credentials", got)
	}
	n.mu.Lock()
	n.revoked["anna"] = true
	n.mu.Unlock()
	a := send(t, "GET", url+jobPath, "anna", "")
	a.want(t, 401, "who are you")
	if a.header.Get("WWW-Authenticate") == "" {
		t.Error("no WWW-Authenticate")
	}
	if got := g.credentials.connected(); got != 0 {
		t.Errorf("%v credentials after the token was revoked", got)
	}
}

func TestCallersWithoutRoleAreNotKept(t *testing.T) {
	n := newFakeNode(t)
	g, url := newTestGateway(t, n, Options{})
	send(t, "GET", url+"/v1/whoami", "norole", "").want(t, 200, "norole")
	if got := g.credentials.connected(); got != 0 {
		t.Errorf("%v credentials", got)
	}
	if n := g.credentials.verifications.inUse() + g.credentials.withoutRole.inUse(); n != 0 {
		t.Errorf("%d places are still taken", n)
	}
	if n := len(g.credentials.identities); n != 0 {
		t.Errorf("%d identities are kept", n)
	}
}

func TestStrangersAreBounded(t *testing.T) {
	n := newFakeNode(t)
	g, url := newTestGateway(t, n, Options{})
	send(t, "GET", url+jobPath, "anna", "").want(t, 200, "")
	n.hold = make(chan struct{})
	var strangers sync.WaitGroup
	codes := make(chan int, 2*maxVerifications)
	for i := range 2 * maxVerifications {
		strangers.Go(func() { codes <- send(t, "GET", url+jobPath, fmt.Sprint("stranger", i), "").code })
	}
	refused := 0
	for range 2*maxVerifications - maxVerifications/4 {
		if <-codes == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused != 2*maxVerifications-maxVerifications/4 {
		t.Errorf("%d were refused", refused)
	}
	// Who is known already is served all the same.
	send(t, "GET", url+jobPath, "anna", "").want(t, 200, "")
	n.mu.Lock()
	if len(n.peers) > 1+maxVerifications/4 {
		t.Errorf("strangers have %d connections", len(n.peers))
	}
	close(n.hold)
	n.hold = nil
	n.mu.Unlock()
	strangers.Wait()
	if got := g.credentials.connected(); got != 1 {
		t.Errorf("%v credentials", got)
	}
}

func TestTokenIsRequired(t *testing.T) {
	n := newFakeNode(t)
	n.open = true
	_, url := newTestGateway(t, n, Options{RequireToken: true})
	send(t, "GET", url+jobPath, "", "").want(t, 401, "no token")
	send(t, "GET", url+jobPath, "", "", "Authorization", "Basic eDp5").want(t, 401, "not one bearer token")
	if n.verified != 0 {
		t.Error("a request without a token reached a node")
	}
}

// TestTokenIsVerifiedByNodes: where nodes do not check tokens, or the certificate of the gateway counts, an invented
// token gives nobody the rights of that certificate.
func TestTokenIsVerifiedByNodes(t *testing.T) {
	n := newFakeNode(t)
	n.open = true
	_, url := newTestGateway(t, n, Options{RequireToken: true})
	send(t, "GET", url+jobPath, "anything", "").want(t, 401, "do not check tokens")
	for method, verified := range map[fermatav1.WhoAmIResponse_Authentication]bool{
		fermatav1.WhoAmIResponse_AUTHENTICATION_UNSPECIFIED: false,
		fermatav1.WhoAmIResponse_AUTHENTICATION_NONE:        false,
		fermatav1.WhoAmIResponse_AUTHENTICATION_CERTIFICATE: false,
		fermatav1.WhoAmIResponse_AUTHENTICATION_TOKEN:       true,
		fermatav1.WhoAmIResponse_AUTHENTICATION_JWT:         true,
	} {
		if got := isAuthenticatedByToken(&fermatav1.WhoAmIResponse{Authentication: method}); got != verified {
			t.Errorf("%v: %v", method, got)
		}
	}
}

func TestOpenNodesNeedNoToken(t *testing.T) {
	n := newFakeNode(t)
	n.open = true
	g, url := newTestGateway(t, n, Options{MaxConnections: 3})
	send(t, "GET", url+jobPath, "", "").want(t, 200, "")
	for i := range 9 {
		send(t, "GET", url+jobPath, fmt.Sprint("any", i), "").want(t, 200, "")
	}
	if got := g.credentials.connected(); got > 3 {
		t.Errorf("%v credentials, want at most 3", got)
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	n := newFakeNode(t)
	g, url := newTestGateway(t, n, Options{})
	send(t, "GET", url+jobPath, "anna", "").want(t, 200, "")
	g.credentials.dropIdle(time.Now().Add(idleTimeout / 2))
	if got := g.credentials.connected(); got != 1 {
		t.Errorf("%v credentials before their time", got)
	}
	g.credentials.dropIdle(time.Now().Add(2 * idleTimeout))
	if got := g.credentials.connected(); got != 0 {
		t.Errorf("%v credentials", got)
	}
	send(t, "GET", url+jobPath, "anna", "").want(t, 200, "")
}
