package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"
)

// fakeSignIn is an issuer that signs in whoever brings the code "good" as anna. The states of its sign-ins are
// "state-1", "state-2" and so on.
type fakeSignIn struct {
	signIns, refreshes, exchanges int
	down                          bool
	refreshedFor                  string // the subject of refreshed tokens; "": that of the sign-in
}

// errDown is an error of a network, which has names and addresses of the operator.
var errDown = errors.New(`fetch https://login.internal/token: dial tcp 10.0.0.9:443: connection refused`)

func (*fakeSignIn) Name() string { return "login.example" }

func (f *fakeSignIn) Begin(_ context.Context, redirectURL string) (address, state string, flow []byte, err error) {
	if f.down {
		return "", "", nil, errDown
	}
	f.signIns++
	state = fmt.Sprintf("state-%d", f.signIns)
	return "https://login.example/auth?back=" + url.QueryEscape(redirectURL), state, []byte("flow of " + state), nil
}

func (f *fakeSignIn) Finish(_ context.Context, flow []byte, q url.Values, _ string) (token, refresh, subject string,
	err error) {
	f.exchanges++
	if f.down {
		return "", "", "", errDown
	}
	if string(flow) != "flow of "+q.Get("state") || q.Get("code") != "good" {
		return "", "", "", errors.New("<b>no</b>")
	}
	return "anna", "refresh-1", "id of anna", nil
}

func (*fakeSignIn) FailedByIssuer(err error) bool { return errors.Is(err, errDown) }

func (f *fakeSignIn) Refresh(context.Context, string) (token, next, subject string, err error) {
	f.refreshes++
	if f.down {
		return "", "", "", errDown
	}
	return "bert", "refresh-2", cmp.Or(f.refreshedFor, "id of anna"), nil
}

// sessionClient is a browser at a gateway: it keeps cookies, and sends the oldest first.
type sessionClient struct {
	t       *testing.T
	gateway *Gateway
	node    *fakeNode
	base    string
	cookies map[string]*http.Cookie
	order   []string // names of cookies, each where it was first set
	log     *bytes.Buffer
}

func newSessionClient(t *testing.T, o *SessionOptions) *sessionClient {
	t.Helper()
	return newSessionClientBelow(t, "", o)
}

// newSessionClientBelow is a browser at a gateway that serves below a path.
func newSessionClientBelow(t *testing.T, base string, o *SessionOptions) *sessionClient {
	t.Helper()
	n := newFakeNode(t)
	c := testConsole(false)
	c.Sessions = o
	log := &bytes.Buffer{}
	g, err := New(Options{Dial: n.dial, Console: c, AllowedHosts: []string{"console.example"}, BasePath: base,
		Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return &sessionClient{t: t, gateway: g, node: n, base: base, cookies: map[string]*http.Cookie{}, log: log}
}

func (c *sessionClient) send(verb, path, body string, headers ...string) *http.Response {
	c.t.Helper()
	r := httptest.NewRequest(verb, "https://console.example"+c.base+path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	for name := range c.cookies { // those that a test has put there
		if !slices.Contains(c.order, name) {
			c.order = append(c.order, name)
		}
	}
	for _, name := range c.order {
		cookie := c.cookies[name]
		if cookie != nil {
			r.AddCookie(cookie)
		}
	}
	w := httptest.NewRecorder()
	c.gateway.ServeHTTP(w, r)
	resp := w.Result()
	for _, cookie := range resp.Cookies() {
		name := strings.TrimPrefix(strings.TrimPrefix(cookie.Name, "__Host-"), "__Secure-")
		if cookie.MaxAge < 0 {
			delete(c.cookies, name)
			continue
		}
		if c.cookies[name] == nil {
			c.order = append(slices.DeleteFunc(c.order, func(n string) bool { return n == name }), name)
		}
		c.cookies[name] = cookie
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
	name := signInName("state-1")
	flow := c.cookies[name]
	if flow == nil || flow.SameSite != http.SameSiteLaxMode || !flow.HttpOnly || !strings.HasPrefix(flow.Name, "__Host-") {
		t.Errorf("cookie of the sign-in: %+v", flow)
	}
	resp = c.send("GET", "/console/callback?code=bad&state=state-1", "")
	if text := bodyOf(t, resp); resp.StatusCode != http.StatusForbidden || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" ||
		!strings.Contains(text, "the log of the gateway says why") || !strings.Contains(text, "https://console.example/#/return\n") {
		t.Errorf("status %d, %s: %s", resp.StatusCode, resp.Header.Get("Content-Type"), text)
	}
	c.cookies[name] = flow
	resp = c.send("GET", "/console/callback?code=good&state=state-1", "")
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "https://console.example/#/return" ||
		c.cookies[name] != nil {
		t.Errorf("status %d, to %s, cookies %v", resp.StatusCode, resp.Header.Get("Location"), c.cookies)
	}
	c.wantIdentity("anna")
}

// TestInventedCodesAreFew: an address that sends codes which the issuer refuses makes the gateway ask it few times. What
// the issuer accepts does not count.
func TestInventedCodesAreFew(t *testing.T) {
	issuer := &fakeSignIn{}
	c := newSessionClient(t, &SessionOptions{URL: "https://console.example", SignIn: issuer})
	c.send("GET", "/console/sign-in", "")
	name := signInName("state-1")
	flow := c.cookies[name]
	callback := func(code string) string {
		c.cookies[name] = flow
		return bodyOf(t, c.send("GET", "/console/callback?state=state-1&code="+code, ""))
	}
	for range 2 * failedExchangeBurst {
		callback("good")
	}
	if issuer.exchanges != 2*failedExchangeBurst {
		t.Fatalf("%d of %d good codes were exchanged", issuer.exchanges, 2*failedExchangeBurst)
	}
	issuer.exchanges = 0
	begin := time.Now()
	for range 10 * failedExchangeBurst {
		callback("bad")
	}
	most := failedExchangeBurst + int(failedExchangesPerSecond*time.Since(begin).Seconds()) + 1
	if issuer.exchanges < failedExchangeBurst || issuer.exchanges > most {
		t.Errorf("%d invented codes were exchanged, want %d to %d", issuer.exchanges, failedExchangeBurst, most)
	}
	if text := callback("bad"); !strings.Contains(text, "too many from this address failed or are under way") {
		t.Errorf("the refusal is %q", text)
	}
}

// TestFailuresOfTheIssuerCountForNobody: an address may sign in as soon as the issuer works again, however often it has
// tried before.
func TestFailuresOfTheIssuerCountForNobody(t *testing.T) {
	issuer := &fakeSignIn{}
	c := newSessionClient(t, &SessionOptions{URL: "https://console.example", SignIn: issuer})
	c.send("GET", "/console/sign-in", "")
	name := signInName("state-1")
	flow := c.cookies[name]
	issuer.down = true
	for range 2 * failedExchangeBurst {
		c.cookies[name] = flow
		c.send("GET", "/console/callback?state=state-1&code=good", "")
	}
	if issuer.exchanges != 2*failedExchangeBurst {
		t.Errorf("the issuer was asked %d times, want %d", issuer.exchanges, 2*failedExchangeBurst)
	}
	issuer.down, c.cookies[name] = false, flow
	if r := c.send("GET", "/console/callback?state=state-1&code=good", ""); r.StatusCode != http.StatusSeeOther {
		t.Errorf("after the issuer has come back: status %d", r.StatusCode)
	}
	if n := len(c.gateway.sessions.failed.byAddress); n != 0 {
		t.Errorf("%d addresses are remembered without a refused code", n)
	}
}

// TestInventedCodesAtOnceAreFew: codes that are sent at once do not pass together. Those that were not refused are
// given back.
func TestInventedCodesAtOnceAreFew(t *testing.T) {
	f, now := newFailedExchanges(), time.Unix(1000, 0)
	var passed atomic.Int64
	var calls sync.WaitGroup
	for range 10 * failedExchangeBurst {
		calls.Go(func() {
			if f.reserve("a", now) {
				passed.Add(1)
			}
		})
	}
	calls.Wait()
	if n := passed.Load(); n != failedExchangeBurst {
		t.Errorf("%d codes passed at once, want %d", n, failedExchangeBurst)
	}
	f.giveBack("a", now)
	if !f.reserve("a", now) || f.reserve("a", now) {
		t.Error("one code that was given back lets none or several pass")
	}
}

// TestFailedExchangesAreOfAnAddress: one address keeps no other from signing in, however many there are.
func TestFailedExchangesAreOfAnAddress(t *testing.T) {
	f, now := newFailedExchanges(), time.Unix(1000, 0)
	for range failedExchangeBurst {
		f.reserve("a", now)
	}
	if f.reserve("a", now) || !f.reserve("b", now) {
		t.Error("an address with many failures may ask the issuer, or another one may not")
	}
	if later := now.Add(time.Second / failedExchangesPerSecond); !f.reserve("a", later) {
		t.Error("failures count for ever")
	}
	for i := range 2 * maxFailingAddresses {
		f.reserve(strconv.Itoa(i), now)
	}
	if n := len(f.byAddress); n > maxFailingAddresses {
		t.Errorf("%d addresses are remembered, want at most %d", n, maxFailingAddresses)
	}
}

// TestErrorsOfTheIssuerAreLogged: strangers learn nothing of the network of the gateway, and its operator does.
func TestErrorsOfTheIssuerAreLogged(t *testing.T) {
	issuer := &fakeSignIn{}
	c := newSessionClient(t, &SessionOptions{URL: "https://console.example", SignIn: issuer})
	begin := func() { c.send("GET", "/console/sign-in", "") }
	for _, step := range []struct {
		before     func()
		verb, path string
	}{
		{func() {}, "GET", "/console/sign-in"},
		{begin, "GET", "/console/callback?code=good&state=state-1"},
		{func() { begin(); c.send("GET", "/console/callback?code=good&state=state-2", "") }, "POST", sessionPath + "/refresh"},
	} {
		issuer.down = false
		step.before()
		issuer.down = true
		c.log.Reset()
		resp := c.send(step.verb, step.path, "")
		text := bodyOf(t, resp)
		if resp.StatusCode < 400 || !strings.Contains(text, "the log of the gateway says why") {
			t.Errorf("%s: status %d: %s", step.path, resp.StatusCode, text)
		}
		for _, detail := range []string{"login.internal", "10.0.0.9", "refused"} {
			if strings.Contains(text, detail) || !strings.Contains(c.log.String(), detail) {
				t.Errorf("%s: %q is shown, or not logged: %s\n%s", step.path, detail, text, c.log)
			}
		}
	}
}

// TestSignInLeadsToTheConsoleOnly: whatever a request asks for, the issuer gets the callback of the console, and the
// browser comes back to its page.
func TestSignInLeadsToTheConsoleOnly(t *testing.T) {
	const callback = "https://login.example/auth?back=https%3A%2F%2Fconsole.example%2Fops%2Ffermata%2Fconsole%2Fcallback"
	issuer := &fakeSignIn{}
	options := &SessionOptions{URL: "https://console.example/ops/fermata/", SignIn: issuer}
	c := newSessionClientBelow(t, "/ops/fermata", options)
	for _, place := range []string{
		"//evil.example", `\\evil.example`, `/\evil.example`, "https://evil.example/", "javascript:alert(1)",
		"/other", "../../other", "#/jobs", "#//evil.example", "/%0d%0aLocation:%20https://evil.example",
		"\x00", "\r\nSet-Cookie: a=b", "\xff", strings.Repeat("x", 10_000),
	} {
		query := url.Values{"state": {fmt.Sprintf("state-%d", issuer.signIns+1)}, "code": {"good"}}
		for _, name := range []string{"return_to", "redirect_uri", "redirect_url", "next", "place", "back", "url"} {
			query.Set(name, place)
		}
		headers := []string{"X-Forwarded-Host", "evil.example", "X-Forwarded-Prefix", "/other", "Referer", "https://evil.example/"}
		resp := c.send("GET", "/console/sign-in?"+query.Encode(), "", headers...)
		if !utf8.ValidString(place) {
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%q: status %d", place, resp.StatusCode)
			}
			continue
		}
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != callback {
			t.Errorf("%.40q: the browser goes to %q", place, resp.Header.Get("Location"))
		}
		resp = c.send("GET", "/console/callback?"+query.Encode(), "", headers...)
		to := resp.Header.Get("Location")
		if resp.StatusCode != http.StatusSeeOther || to != "https://console.example/ops/fermata/#/return" {
			t.Errorf("%.40q: status %d, the browser comes back to %q", place, resp.StatusCode, to)
		}
	}
}

// TestTabsSignInAtOnce: neither tab ends or takes over the sign-in of the other.
func TestTabsSignInAtOnce(t *testing.T) {
	c := newSessionClient(t, &SessionOptions{URL: "https://console.example", SignIn: &fakeSignIn{}})
	c.send("GET", "/console/sign-in", "")
	c.send("GET", "/console/sign-in", "")
	first, second := signInName("state-1"), signInName("state-2")
	if c.cookies[first] == nil || c.cookies[second] == nil {
		t.Fatalf("cookies %v", c.cookies)
	}
	// The cookie of one sign-in does not serve another.
	mixed := newSessionClient(t, nil)
	mixed.gateway = c.gateway
	other := *c.cookies[first]
	other.Name = c.cookies[second].Name
	mixed.cookies[second] = &other
	resp := mixed.send("GET", "/console/callback?code=good&state=state-2", "")
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("the cookie of another sign-in: status %d", resp.StatusCode)
	}
	for _, state := range []string{"state-2", "state-1"} {
		resp = c.send("GET", "/console/callback?code=good&state="+state, "")
		if resp.StatusCode != http.StatusSeeOther || c.cookies[signInName(state)] != nil || c.cookies[sessionCookie] == nil {
			t.Errorf("%s: status %d, cookies %v", state, resp.StatusCode, c.cookies)
		}
		delete(c.cookies, sessionCookie)
	}
	resp = c.send("GET", "/console/callback?code=good&state=state-1", "")
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("the same answer again: status %d", resp.StatusCode)
	}
}

// TestAbandonedSignInsAreFew: sign-ins that nobody completes do not outgrow the headers of a request.
func TestAbandonedSignInsAreFew(t *testing.T) {
	c := newSessionClient(t, &SessionOptions{URL: "https://console.example", SignIn: &fakeSignIn{}})
	c.send("POST", sessionPath, `{"token":"anna"}`)
	const begun = 3 * maxBrowserSignIns
	for range begun {
		c.send("GET", "/console/sign-in", "")
	}
	if n := len(c.cookies); n != maxBrowserSignIns+1 {
		t.Errorf("%d cookies of %d sign-ins", n, begun)
	}
	c.wantIdentity("anna")
	for i := begun - maxBrowserSignIns + 1; i <= begun; i++ { // the latest can all be completed
		resp := c.send("GET", fmt.Sprintf("/console/callback?code=good&state=state-%d", i), "")
		if resp.StatusCode != http.StatusSeeOther {
			t.Errorf("sign-in %d: status %d", i, resp.StatusCode)
		}
	}
}

// TestSessionOfAnotherSubjectEnds: a session never becomes that of somebody else, in no tab, and not by another try.
func TestSessionOfAnotherSubjectEnds(t *testing.T) {
	issuer := &fakeSignIn{refreshedFor: "id of bert"}
	c := newSessionClient(t, &SessionOptions{URL: "https://console.example", SignIn: issuer})
	c.send("GET", "/console/sign-in", "")
	c.send("GET", "/console/callback?code=good&state=state-1", "")
	old := c.cookies[sessionCookie]
	for range 2 { // two tabs
		c.cookies[sessionCookie] = old
		resp := c.send("POST", sessionPath+"/refresh", "")
		if resp.StatusCode != http.StatusUnauthorized || c.cookies[sessionCookie] != nil {
			t.Errorf("status %d, cookies %v", resp.StatusCode, c.cookies)
		}
	}
	if resp := c.send("GET", "/v1/whoami", ""); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("after the end: status %d", resp.StatusCode)
	}
	if !strings.Contains(c.log.String(), "another subject") {
		t.Errorf("log: %s", c.log)
	}
}

// TestSessionIsRefreshedOnce: two tabs that refresh at once send the refresh token to the issuer once.
func TestSessionIsRefreshedOnce(t *testing.T) {
	issuer := &fakeSignIn{}
	c := newSessionClient(t, &SessionOptions{URL: "https://console.example", SignIn: issuer})
	c.send("GET", "/console/sign-in", "")
	c.send("GET", "/console/callback?code=good&state=state-1", "")
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
