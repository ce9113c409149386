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

// openTab opens a page in a browser of its own.
func openTab(t *testing.T, address string) *tab {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is not here: make deps installs it")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.IgnoreCertErrors)
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stopAllocator)
	ctx, stop := chromedp.NewContext(allocator)
	t.Cleanup(stop)
	p := &tab{t: t, ctx: ctx}
	err = chromedp.Do(ctx)
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

// startConsole starts a gateway that signs people in at Dex, and returns the address of its console.
func (b *bed) startConsole() string {
	b.t.Helper()
	start(b.t, built(b.t, "gateway"), "--scheduler", b.node, "--rest-addr", b.console, "--console-url", "http://"+b.console,
		"--oidc-issuer", b.server.URL, "--oidc-client-id", consoleClientID, "--oidc-ca", b.ca, "--oidc-scopes", "email,offline_access,audience:server:client_id:"+clientID)
	address := "http://" + b.console + "/"
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

// TestConsoleSignIn signs a person in to the web console, in a browser: the authorization code flow with PKCE, a session
// that scripts cannot read and that outlives its first token, and its end.
func TestConsoleSignIn(t *testing.T) {
	const life = 20 * time.Second
	b := newBed(t, life)
	b.signIn()
	b.wants(0, "nightly", "jobs", "create", "nightly", "--handler", "h", "--every", "1h")
	address := b.startConsole()
	p := openTab(t, address+"#/jobs?namespace=default")
	p.waitText("h1", "Sign in")
	p.click("a.button.main")
	p.fillIn("a wrong password")
	p.waitText("#login-error", "Invalid")
	p.fillIn(password)
	p.waitText(".who", "jwt:dex:"+email)
	signedIn := time.Now()
	// The way over the issuer leads to the first screen.
	p.script(`location.hash = "#/jobs?namespace=default"`)
	p.waitText("tbody", "nightly")

	asked := p.requestTo(b.server.URL + "/auth?")
	for _, want := range []string{"response_type=code", "code_challenge_method=S256", "code_challenge=", "state=", "nonce="} {
		if !strings.Contains(asked, want) {
			t.Errorf("the request to the issuer has no %s: %s", want, asked)
		}
	}
	if left := p.script(`document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + location.href`); strings.Contains(left, "eyJ") || strings.Contains(left, "code=") {
		t.Errorf("scripts can read %q", left)
	}
	// The code counts once, and in this browser only.
	if answer := p.requestTo(address + "console/callback?"); answer == "" {
		t.Error("the issuer has not sent the browser back")
	} else if refused, err := http.Get(answer); err != nil || refused.StatusCode < http.StatusBadRequest {
		t.Errorf("the same answer of the issuer in another browser: %+v, %v", refused, err)
	} else {
		refused.Body.Close()
	}
	eventually(t, "the first token has ended", func() error {
		if left := life - time.Since(signedIn); left > 0 {
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
	p.do(chromedp.Reload())
	p.waitText(".who", "jwt:dex:"+email)
	p.waitText("tbody", "nightly")
	p.click(".menu summary")
	p.click(".panel button")
	p.waitText("h1", "Sign in")
	p.do(chromedp.Reload())
	p.waitText("h1", "Sign in")
}
