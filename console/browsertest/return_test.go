package browsertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
)

// testIssuer is the site of an issuer: it signs in whoever presses the button of its page, as the caller of next.
type testIssuer struct {
	url  string
	next atomic.Value // the name of a caller
}

var issuerPage = template.Must(template.New("").Parse(`<!doctype html><title>Issuer</title><main><h1>Who are you?</h1>
<form action="{{.Get "redirect_uri"}}"><input type="hidden" name="state" value="{{.Get "state"}}">
<input type="hidden" name="code" value="good"><button id="allow">Allow</button></form></main>`))

// startIssuer starts an issuer at a site other than that of the console.
func startIssuer(t *testing.T) *testIssuer {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = issuerPage.Execute(w, r.URL.Query())
	}))
	t.Cleanup(func() {
		s.CloseClientConnections() // the browser may hold some
		s.Close()
	})
	return &testIssuer{url: strings.Replace(s.URL, "127.0.0.1", "localhost", 1)}
}

func (*testIssuer) Name() string { return "login.example" }

func (i *testIssuer) Begin(_ context.Context, redirectURL string) (address, state string, flow []byte, err error) {
	state = rand.Text()
	query := url.Values{"redirect_uri": {redirectURL}, "state": {state}}
	return i.url + "/auth?" + query.Encode(), state, []byte(state), nil
}

func (i *testIssuer) Finish(_ context.Context, flow []byte, q url.Values, _ string) (token, refresh, subject string,
	err error) {
	if string(flow) != q.Get("state") || q.Get("code") != "good" {
		return "", "", "", errors.New("the answer belongs to another sign-in")
	}
	name := i.next.Load().(string)
	return testToken(name), "", name, nil
}

func (*testIssuer) FailedByIssuer(error) bool { return false }

func (*testIssuer) Refresh(context.Context, string) (token, next, subject string, err error) {
	return "", "", "", errors.New("there are no refresh tokens")
}

// startClusterWithIssuer is a cluster whose people sign in at an issuer, behind a proxy that removes a path. access
// replaces the access file.
func startClusterWithIssuer(t *testing.T, text string) (c *cluster, issuer *testIssuer, access func(string)) {
	t.Helper()
	issuer = startIssuer(t)
	proxyURL, forward := startProxy(t, "/ops/fermata")
	address, access := startGuardedNode(t, text)
	c = startGuardedGateway(t, address, &gateway.SessionOptions{URL: proxyURL, SignIn: issuer})
	forward(c.url)
	c.url, c.issuer = proxyURL, strings.TrimPrefix(issuer.url, "http://")
	return c, issuer, access
}

// goToIssuer follows the link to the issuer.
func (p *tab) goToIssuer() {
	p.t.Helper()
	p.waitText("main h1", "Sign in")
	p.click("a.button.main")
	p.waitText("h1", "Who are you?")
}

// wantPlace waits until the page is at a place of the console, and checks that it is no other page.
func (p *tab) wantPlace(c *cluster, place string) {
	p.t.Helper()
	p.wait(place, fmt.Sprintf("location.href === %q", c.url+"/"+place))
}

// TestSignInLeadsBack: each of two tabs that sign in at once comes back to its place.
func TestSignInLeadsBack(t *testing.T) {
	c, issuer, _ := startClusterWithIssuer(t, accessText([2]string{"admin", "admin"}, [2]string{"anna", "viewer"}))
	for _, id := range []string{"alpha", "beta"} {
		c.createJob(id, &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	}
	issuer.next.Store("anna")
	list := "#/jobs?filter=id+%3D+alpha&namespace=" + namespaceOf(t)
	first, second := c.openTab(list), c.openTab(jobPlace(t, "beta"))
	first.goToIssuer()
	second.goToIssuer()
	first.click("#allow")
	first.waitText(".who", "token:anna")
	first.wantPlace(c, list)
	first.waitText("tbody", "alpha")
	if text := first.text("tbody"); strings.Contains(text, "beta") {
		t.Errorf("the filter is lost:\n%s", text)
	}
	second.click("#allow")
	second.waitText("h1", "beta")
	second.wantPlace(c, jobPlace(t, "beta"))
	for _, p := range []*tab{first, second} {
		if kept := evaluate[int](p, "sessionStorage.length"); kept != 0 {
			t.Errorf("after the return %d values are kept", kept)
		}
		if cookies := evaluate[string](p, "document.cookie"); cookies != "" {
			t.Errorf("scripts can read the cookies %q", cookies)
		}
	}
}

// TestSignInLeadsBackToAnEdit: after the end of a session and a reload, what was typed is there again.
func TestSignInLeadsBackToAnEdit(t *testing.T) {
	admin, first, second := [2]string{"admin", "admin"}, [2]string{"first", "editor"}, [2]string{"second", "editor"}
	c, issuer, access := startClusterWithIssuer(t, accessText(admin, first, second))
	c.createJob("job", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	place := jobPlace(t, "job") + "/edit"
	issuer.next.Store("first")
	p := c.openTab(place)
	p.goToIssuer()
	p.click("#allow")
	p.wantPlace(c, place)
	p.fill(field("priority"), "7")
	access(accessText(admin, second))
	p.waitText("dialog[open]", "The session has ended")
	issuer.next.Store("second")
	p.reload()
	p.goToIssuer()
	p.click("#allow")
	p.waitText(".who", "token:second")
	p.wantPlace(c, place)
	p.waitText(".stale", "is back")
	p.click("[data-save]")
	p.waitText("main", "with warnings")
	j, err := c.client.GetJob(t.Context(), "job")
	if err != nil || j.GetPriority() != 7 {
		t.Errorf("priority %d, error %v", j.GetPriority(), err)
	}
}

// TestSignInInAnotherTab: tabs that ask for a sign-in go on after one in another tab, where they are and with what was
// typed.
func TestSignInInAnotherTab(t *testing.T) {
	admin, first, second := [2]string{"admin", "admin"}, [2]string{"first", "editor"}, [2]string{"second", "editor"}
	c, issuer, access := startClusterWithIssuer(t, accessText(admin, first, second))
	c.createJob("job", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	issuer.next.Store("first")
	edit := c.openTab(jobPlace(t, "job") + "/edit")
	edit.goToIssuer()
	edit.click("#allow")
	edit.fill(field("priority"), "7")
	access(accessText(admin, second))
	edit.waitText("dialog[open]", "The session has ended")
	link := evaluate[string](edit,
		`(a => a.target + " " + a.rel + " " + a.href)(document.querySelector("dialog[open] a.button.main"))`)
	if want := "_blank noopener " + c.url + "/console/sign-in"; link != want {
		t.Errorf("the link of the dialog is %q, want %q", link, want)
	}
	waiting := c.openTab(jobPlace(t, "job"))
	waiting.waitText("main h1", "Sign in")
	issuer.next.Store("second")
	// As the browser does: the page hears of the click, and the address is opened in a tab that knows nothing of it.
	evaluate[string](edit, `(a => {
		a.addEventListener("click", e => e.preventDefault(), { once: true });
		a.click();
		return "";
	})(document.querySelector("dialog[open] a.button.main"))`)
	other := c.openTab("console/sign-in")
	other.waitText("h1", "Who are you?")
	other.click("#allow")
	other.waitText(".who", "token:second")
	other.wantPlace(c, jobPlace(t, "job")+"/edit")
	if handed := evaluate[bool](other, `"fermata.return" in localStorage`); handed {
		t.Error("the place that was handed over is still there")
	}
	for _, p := range []*tab{edit, waiting} {
		evaluate[bool](p, `document.dispatchEvent(new Event("visibilitychange"))`) // somebody looks at it
		p.waitText(".who", "token:second")
	}
	waiting.wantPlace(c, jobPlace(t, "job"))
	edit.waitGone("dialog[open]")
	edit.wantPlace(c, jobPlace(t, "job")+"/edit")
	if text := evaluate[string](edit, `document.querySelector("`+field("priority")+`").value`); text != "7" {
		t.Errorf("the field has %q", text)
	}
}

// returnsTo hands a place over as another tab would, some time ago, and checks where the return then leads, and that it
// leads there once.
func (p *tab) returnsTo(c *cluster, handed string, age time.Duration, place string) {
	p.t.Helper()
	p.goTo("#/jobs")
	evaluate[string](p, fmt.Sprintf(`localStorage.setItem("fermata.return", %q.replace("{now}", Date.now() - %d)), ""`,
		handed, age.Milliseconds()))
	for _, want := range []string{place, "#/"} {
		p.goTo("#/return")
		p.wantPlace(c, want)
	}
}

// TestReturnLeadsNowhereElse: whatever is kept in a tab, the return from an issuer ends at a place of the console, and
// only the return uses it.
func TestReturnLeadsNowhereElse(t *testing.T) {
	c, _ := startGuardedCluster(t, accessText([2]string{"admin", "admin"}))
	p := c.openTab("#/jobs")
	const keep = `sessionStorage.setItem("fermata.draft/return", %q)`
	for _, kept := range []string{
		``, `{`, `null`, `7`, `{"a":1}`, `["#/jobs"]`, `""`, `"jobs"`, `"/other"`, `"//evil.example/"`, `"\\\\evil.example"`,
		`"/\\evil.example"`, `"https://evil.example/"`, `"javascript:alert(1)"`, `"\u0000#/jobs"`, `" #/jobs"`, `"#jobs"`,
		`"?x#/jobs"`, `"../#/jobs"`, `"#/return"`, `"#/` + strings.Repeat("x", 8000) + `"`,
	} {
		p.goTo("#/jobs")
		evaluate[string](p, fmt.Sprintf(keep, kept)+`, ""`)
		p.goTo("#/return")
		p.wantPlace(c, "#/")
		if left := evaluate[int](p, "sessionStorage.length"); left != 0 {
			t.Errorf("after %.40s, %d values are kept", kept, left)
		}
		for _, handed := range []string{kept, fmt.Sprintf(`{"place":%s,"at":{now}}`, kept)} {
			p.returnsTo(c, handed, 0, "#/")
		}
	}
	p.returnsTo(c, `{"place":"#/queues","at":{now}}`, 0, "#/queues")
	for _, age := range []time.Duration{-time.Hour, 11 * time.Minute} {
		p.returnsTo(c, `{"place":"#/queues","at":{now}}`, age, "#/")
	}
	evaluate[string](p, fmt.Sprintf(keep, `"#/queues"`)+`, ""`)
	p.goTo("#/events")
	p.wait("another place", `location.hash === "#/events"`)
	p.reload()
	p.waitText("main h1", "Sign in")
	p.wantPlace(c, "#/events")
	p.goTo("#/return")
	p.wantPlace(c, "#/queues")
	p.goTo("#/return") // once
	p.wantPlace(c, "#/")
}
