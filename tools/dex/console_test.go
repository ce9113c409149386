package dex_test

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// tab is a page of Chromium.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	requests []string // their URLs
}

// startBrowser starts Chromium.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is not here: make deps installs it")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.IgnoreCertErrors)
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stopAllocator)
	browser, stop := chromedp.NewContext(allocator)
	t.Cleanup(stop)
	if err := chromedp.Do(browser); err != nil {
		t.Fatal("start chromium:", err)
	}
	return browser
}

// openTab opens a page in a tab of its own.
func openTab(t *testing.T, browser context.Context, address string) *tab {
	t.Helper()
	ctx, stop := chromedp.NewContext(browser)
	t.Cleanup(stop)
	p := &tab{t: t, ctx: ctx}
	err := chromedp.Do(ctx)
	if err == nil {
		err = chromedp.Listen(ctx, func(event any) {
			if e, ok := event.(*network.EventRequestWillBeSent); ok {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.requests = append(p.requests, e.Request.URL)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.Navigate(address))
	return p
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatalf("%v\n%s", err, p.script(`document.body.innerText`))
	}
}

// script returns the text that a script results in; "" while the page changes.
func (p *tab) script(script string) string {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](script, chromedp.EvalAwaitPromise))
	if err != nil {
		return ""
	}
	return text
}

// waitText waits until an element has a text.
func (p *tab) waitText(selector, text string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%q in %s", text, selector), func() error {
		got := p.script(fmt.Sprintf(`[...document.querySelectorAll(%q)].map(e => e.innerText).join("\n")`, selector))
		if !strings.Contains(got, text) {
			return fmt.Errorf("the page has %q", p.script(`document.body.innerText`))
		}
		return nil
	})
}

func (p *tab) click(selector string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// fillIn sends the form of Dex.
func (p *tab) fillIn(password string) {
	p.t.Helper()
	p.waitText("h2", "Log in to Your Account")
	for selector, text := range map[string]string{"#login": email, "#password": password} {
		p.script(fmt.Sprintf(`document.querySelector(%q).value = ""`, selector))
		p.do(chromedp.SendKeys(chromedp.CSS(selector), text))
	}
	p.click("#submit-login")
}

// requestTo returns the first request to an address that begins so.
func (p *tab) requestTo(begin string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.IndexFunc(p.requests, func(r string) bool { return strings.HasPrefix(r, begin) }); i >= 0 {
		return p.requests[i]
	}
	return ""
}

// requestsWith returns the requests with a text in their URL.
func (p *tab) requestsWith(text string) (found []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		if strings.Contains(r, text) {
			found = append(found, r)
		}
	}
	return found
}

// goToIssuer follows the link to Dex.
func (p *tab) goToIssuer() {
	p.t.Helper()
	p.waitText("main h1", "Sign in")
	p.click("a.button.main")
	p.waitText("h2", "Log in to Your Account")
}

// wantPlace waits until the page is at an address.
func (p *tab) wantPlace(address string) {
	p.t.Helper()
	eventually(p.t, "the page is at "+address, func() error {
		at := p.script(`location.href`)
		if at != address {
			return fmt.Errorf("it is at %s", at)
		}
		return nil
	})
}

// fill replaces the text of a field of the console.
func (p *tab) fill(name, text string) {
	p.t.Helper()
	selector := fmt.Sprintf("[data-field=%q]", name)
	p.do(chromedp.WaitVisible(chromedp.CSS(selector)))
	p.script(fmt.Sprintf(`document.querySelector(%q).select()`, selector))
	p.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// signOut ends the session.
func (p *tab) signOut() {
	p.t.Helper()
	p.click(".menu summary")
	p.click(".panel button")
	p.waitText("main h1", "Sign in")
}

// startConsole starts a gateway that signs people in at Dex, and returns the address of its console.
func (b *bed) startConsole() string {
	b.t.Helper()
	address := "http://" + b.console + consolePath + "/"
	start(b.t, built(b.t, "gateway"), "--scheduler", b.node, "--rest-addr", b.console, "--base-path", consolePath,
		"--console-url", address, "--oidc-issuer", b.server.URL, "--oidc-client-id", consoleClientID, "--oidc-ca", b.ca,
		"--oidc-scopes", "email,offline_access,audience:server:client_id:"+clientID)
	eventually(b.t, "the console is served", func() error {
		answer, err := http.Get(address)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", answer.StatusCode)
		}
		return nil
	})
	return address
}

// TestConsoleSignIn signs a person in to the web console, in a browser: the authorization code flow with PKCE, the way
// back to where it began, a session that scripts cannot read and that outlives its first token, and its end.
func TestConsoleSignIn(t *testing.T) {
	const life = 20 * time.Second
	b := newBed(t, life)
	b.signIn()
	b.wants(0, "nightly", "jobs", "create", "nightly", "--handler", "h", "--every", "1h")
	b.wants(0, "hourly", "jobs", "create", "hourly", "--handler", "h", "--every", "1h")
	address := b.startConsole()
	list := address + "#/jobs?filter=id+%3D+nightly&namespace=default"
	browser := startBrowser(t)
	p := openTab(t, browser, list)
	p.goToIssuer()
	p.fillIn("a wrong password")
	p.waitText("#login-error", "Invalid")
	p.fillIn(password)
	p.waitText(".who", "jwt:dex:"+email)
	signedIn := time.Now()
	p.wantPlace(list)
	p.waitText("tbody", "nightly")
	if text := p.script(`document.querySelector("tbody").innerText`); strings.Contains(text, "hourly") {
		t.Errorf("the filter is lost:\n%s", text)
	}
	b.checkExchange(p, address)
	eventually(t, "the first token has ended", func() error {
		if left := life - time.Since(signedIn); left > 0 {
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
	p.do(chromedp.Reload())
	p.waitText(".who", "jwt:dex:"+email)
	p.waitText("tbody", "nightly")
	p.signOut()
	p.do(chromedp.Reload())
	p.waitText("main h1", "Sign in")
	// Two tabs sign in at once: each comes back to its place.
	job := address + "#/namespaces/default/jobs/hourly"
	other := openTab(t, browser, job)
	p.goToIssuer()
	other.goToIssuer()
	p.fillIn(password)
	p.waitText("tbody", "nightly")
	p.wantPlace(list)
	other.fillIn(password)
	other.waitText("main h1", "hourly")
	other.wantPlace(job)
}

// checkExchange checks how a tab was signed in.
func (b *bed) checkExchange(p *tab, address string) {
	b.t.Helper()
	asked := p.requestTo(b.server.URL + "/auth?")
	for _, want := range []string{
		"response_type=code", "code_challenge_method=S256", "code_challenge=", "state=", "nonce=",
	} {
		if !strings.Contains(asked, want) {
			b.t.Errorf("the request to the issuer has no %s: %s", want, asked)
		}
	}
	const readable = `document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + location.href`
	left := p.script(readable)
	if strings.Contains(left, "eyJ") || strings.Contains(left, "code=") {
		b.t.Errorf("scripts can read %q", left)
	}
	for _, r := range p.requestsWith("nightly") {
		if !strings.HasPrefix(r, address+"v1/") {
			b.t.Errorf("the place is in the request %s", r)
		}
	}
	// The code counts once, and in this browser only.
	answer := p.requestTo(address + "console/callback?")
	if answer == "" {
		b.t.Fatal("the issuer has not sent the browser back")
	}
	refused, err := http.Get(answer)
	if err != nil {
		b.t.Fatal(err)
	}
	refused.Body.Close()
	if refused.StatusCode < http.StatusBadRequest {
		b.t.Errorf("the same answer of the issuer in another browser: status %d", refused.StatusCode)
	}
}

// TestConsoleSessionEnds: the issuer ends a session during an edit. After a reload and a new sign-in the edit is there
// again, and can be saved.
func TestConsoleSessionEnds(t *testing.T) {
	b := newBed(t, 10*time.Second)
	b.signIn()
	b.wants(0, "nightly", "jobs", "create", "nightly", "--handler", "h", "--every", "1h")
	address := b.startConsole()
	edit := address + "#/namespaces/default/jobs/nightly/edit"
	p := openTab(t, startBrowser(t), edit)
	p.goToIssuer()
	p.fillIn(password)
	p.fill("priority", "7")
	p.waitText(".diff", "priority")
	b.endSessions()
	p.waitText("dialog[open]", "The session has ended")
	p.do(chromedp.Reload())
	p.goToIssuer()
	p.fillIn(password)
	p.wantPlace(edit)
	p.waitText(".stale", "is back")
	p.click("[data-save]")
	p.waitText("main", "with warnings")
	b.signIn()
	b.wants(0, `"priority": 7`, "jobs", "get", "nightly", "-o", "json")
	p.signOut()
}
