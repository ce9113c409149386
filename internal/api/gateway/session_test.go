package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// fakeSignIn is an issuer that signs in whoever brings the code "good" as anna.
type fakeSignIn struct {
	refreshes int
	down      bool
}

func (*fakeSignIn) Name() string { return "login.example" }

func (*fakeSignIn) Begin(_ context.Context, redirectURL string) (string, []byte, error) {
	return "https://login.example/auth?back=" + url.QueryEscape(redirectURL), []byte("flow"), nil
}

func (*fakeSignIn) Finish(_ context.Context, flow []byte, q url.Values, _ string) (string, string, error) {
	if string(flow) != "flow" || q.Get("code") != "good" {
		return "", "", errors.New("<b>no</b>")
	}
	return "anna", "refresh-1", nil
}

func (f *fakeSignIn) Refresh(context.Context, string) (string, string, error) {
	f.refreshes++
	if f.down {
		return "", "", errors.New("the issuer is down")
	}
	return "bert", "refresh-2", nil
}

// sessionClient is a browser at a gateway: it keeps cookies.
type sessionClient struct {
	t       *testing.T
	gateway *Gateway
	node    *fakeNode
	cookies map[string]*http.Cookie
}

func newSessionClient(t *testing.T, o *SessionOptions) *sessionClient {
	t.Helper()
	n := newFakeNode(t)
	c := testConsole(false)
	c.Sessions = o
	g, err := New(Options{Dial: n.dial, Console: c, AllowedHosts: []string{"console.example"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return &sessionClient{t: t, gateway: g, node: n, cookies: map[string]*http.Cookie{}}
}

func (c *sessionClient) send(verb, path, body string, headers ...string) *http.Response {
	c.t.Helper()
	r := httptest.NewRequest(verb, "https://console.example"+path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	for _, cookie := range c.cookies {
		r.AddCookie(cookie)
	}
	w := httptest.NewRecorder()
	c.gateway.ServeHTTP(w, r)
	resp := w.Result()
	for _, cookie := range resp.Cookies() {
		name := strings.TrimPrefix(cookie.Name, "__Host-")
		if cookie.MaxAge < 0 {
			delete(c.cookies, name)
		} else {
			c.cookies[name] = cookie
		}
	}
	return resp
}

func (c *sessionClient) wantIdentity(want string) {
	c.t.Helper()
	if text := bodyOf(c.t, c.send("GET", "/v1/whoami", "")); !strings.Contains(text, want) {
		c.t.Errorf("whoami: %s, want %s", text, want)
	}
}

func TestSessionOfAPastedToken(t *testing.T) {
	c := newSessionClient(t, &SessionOptions{URL: "https://console.example/"})
	for _, body := range []string{`{"token":"wrong"}`, `{"token":""}`, `{"token":"a b"}`, `{`, `{"token":"` + strings.Repeat("x", 5000) + `"}`} {
		if resp := c.send("POST", sessionPath, body); resp.StatusCode < 400 || len(c.cookies) > 0 {
			t.Errorf("%.40s: status %d, cookies %v", body, resp.StatusCode, c.cookies)
		}
	}
	if resp := c.send("POST", sessionPath, `{"token":" anna "}`); resp.StatusCode != http.StatusNoContent {
		t.Fatalf("status %d: %s", resp.StatusCode, bodyOf(t, resp))
	}
	cookie := c.cookies[sessionCookie]
	if !cookie.HttpOnly || !cookie.Secure || cookie.SameSite != http.SameSiteStrictMode || strings.Contains(cookie.Value, "anna") {
		t.Errorf("cookie %+v", cookie)
	}
	if cookie.Name != "__Host-"+sessionCookie || cookie.Path != "/" || cookie.Domain != "" {
		t.Errorf("other hosts may set the cookie %s of %q, path %s", cookie.Name, cookie.Domain, cookie.Path)
	}
	c.wantIdentity("anna")
	plain := *cookie
	plain.Name = sessionCookie
	c.cookies[sessionCookie] = &plain
	if resp := c.send("GET", "/v1/whoami", ""); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a cookie that another host may have set: status %d", resp.StatusCode)
	}
	c.cookies[sessionCookie] = cookie
	if text := bodyOf(t, c.send("GET", "/v1/whoami", "", "Authorization", "Bearer bert")); !strings.Contains(text, "bert") {
		t.Errorf("the header does not replace the session: %s", text)
	}
	c.send("DELETE", sessionPath, "")
	if len(c.cookies) > 0 {
		t.Errorf("after the end: %v", c.cookies)
	}
}

// TestSessionIsOfThisOrigin: neither a page of another origin nor a cookie of another gateway gives access.
func TestSessionIsOfThisOrigin(t *testing.T) {
	c := newSessionClient(t, &SessionOptions{})
	c.send("POST", sessionPath, `{"token":"anna"}`)
	resp := c.send("POST", "/v1/namespaces/default/jobs/a:run", "{}", "Sec-Fetch-Site", "cross-site")
	if text := bodyOf(t, resp); !strings.Contains(text, "CROSS_ORIGIN") {
		t.Errorf("a call of another origin: %s", text)
	}
	if resp := c.send("POST", sessionPath, `{"token":"bert"}`, "Sec-Fetch-Site", "cross-site"); resp.StatusCode != 403 {
		t.Errorf("a sign-in by another origin: status %d", resp.StatusCode)
	}
	other := newSessionClient(t, &SessionOptions{})
	other.cookies = c.cookies
	if resp := other.send("GET", "/v1/whoami", ""); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the cookie of another key: status %d", resp.StatusCode)
	}
	key := []byte(strings.Repeat("k", 32))
	one, two := newSessionClient(t, &SessionOptions{Key: key}), newSessionClient(t, &SessionOptions{Key: key})
	one.send("POST", sessionPath, `{"token":"anna"}`)
	two.cookies = one.cookies
	two.wantIdentity("anna")
}

func TestSignInAtAnIssuer(t *testing.T) {
	issuer := &fakeSignIn{}
	c := newSessionClient(t, &SessionOptions{URL: "https://console.example", SignIn: issuer})
	if text := bodyOf(t, c.send("GET", "/console.json", "")); !strings.Contains(text, `"provider":"login.example"`) {
		t.Errorf("console.json: %s", text)
	}
	if resp := c.send("GET", "/console/callback?code=good", ""); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a callback that nobody asked for: status %d", resp.StatusCode)
	}
	resp := c.send("GET", "/console/sign-in", "")
	want := "https://login.example/auth?back=https%3A%2F%2Fconsole.example%2Fconsole%2Fcallback"
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != want {
		t.Fatalf("status %d, to %s", resp.StatusCode, resp.Header.Get("Location"))
	}
	if cookie := c.cookies[signInCookie]; cookie == nil || cookie.SameSite != http.SameSiteLaxMode || !cookie.HttpOnly {
		t.Errorf("cookie of the sign-in: %+v", cookie)
	}
	flow := c.cookies[signInCookie]
	resp = c.send("GET", "/console/callback?code=bad", "")
	if text := bodyOf(t, resp); resp.StatusCode != http.StatusForbidden || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" ||
		!strings.Contains(text, "<b>no</b>") {
		t.Errorf("status %d, %s: %s", resp.StatusCode, resp.Header.Get("Content-Type"), text)
	}
	c.cookies[signInCookie] = flow
	resp = c.send("GET", "/console/callback?code=good", "")
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/" || c.cookies[signInCookie] != nil {
		t.Errorf("status %d, to %s, cookies %v", resp.StatusCode, resp.Header.Get("Location"), c.cookies)
	}
	c.wantIdentity("anna")
}

// TestSessionIsRefreshedOnce: two tabs that refresh at once send the refresh token to the issuer once.
func TestSessionIsRefreshedOnce(t *testing.T) {
	issuer := &fakeSignIn{}
	c := newSessionClient(t, &SessionOptions{URL: "https://console.example", SignIn: issuer})
	c.send("GET", "/console/sign-in", "")
	c.send("GET", "/console/callback?code=good", "")
	old := c.cookies[sessionCookie]
	issuer.down = true
	if resp := c.send("POST", sessionPath+"/refresh", ""); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("with the issuer down: status %d", resp.StatusCode)
	}
	issuer.down, issuer.refreshes = false, 0
	for range 2 {
		c.cookies[sessionCookie] = old
		if resp := c.send("POST", sessionPath+"/refresh", ""); resp.StatusCode != http.StatusNoContent {
			t.Fatalf("status %d: %s", resp.StatusCode, bodyOf(t, resp))
		}
	}
	if issuer.refreshes != 1 {
		t.Errorf("%d calls of the issuer", issuer.refreshes)
	}
	c.wantIdentity("bert")
	for _, call := range c.gateway.sessions.refreshes {
		call.at = call.at.Add(-2 * refreshKept)
	}
	c.gateway.sessions.findRefresh("other")
	if n := len(c.gateway.sessions.refreshes); n != 1 {
		t.Errorf("%d results are kept after %v", n, 2*refreshKept+time.Second)
	}
}
