package browsertest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/chromedp/chromedp/kb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/redis/conn"
)

// testToken is a token of the access file of a test.
func testToken(name string) string { return name + "-4f1d7c0a9be2836655" }

// accessText is an access file with these callers: name and role.
func accessText(callers ...[2]string) string {
	tokens, rules := "tokens:\n", "rules:\n"
	for _, c := range callers {
		tokens += fmt.Sprintf("- {name: %s, sha256: %x}\n", c[0], sha256.Sum256([]byte(testToken(c[0]))))
		rules += fmt.Sprintf("- {subjects: ['token:%s'], role: %s, namespaces: ['*']}\n", c[0], c[1])
	}
	return tokens + rules
}

// startGuardedCluster is a cluster whose node authenticates callers. access replaces the access file.
func startGuardedCluster(t *testing.T, text string) (c *cluster, access func(string)) {
	t.Helper()
	address, access := startGuardedNode(t, text)
	return startGuardedGateway(t, address, &gateway.SessionOptions{}), access
}

// startGuardedGateway serves the console of a node that authenticates callers.
func startGuardedGateway(t *testing.T, address string, o *gateway.SessionOptions) *cluster {
	t.Helper()
	console := testConsole()
	console.Sessions = o
	return startGateway(t, address, gateway.Options{Console: console}, client.Options{
		Token: func(context.Context) (string, error) { return testToken("admin"), nil },
	})
}

// startGuardedNode starts a node that authenticates callers. access replaces the access file.
func startGuardedNode(t *testing.T, text string) (address string, access func(string)) {
	t.Helper()
	redis := miniredis.NewMiniRedis()
	redis.ClockTTL(true)
	if err := redis.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	file := filepath.Join(t.TempDir(), "access.yaml")
	access = func(text string) {
		next := file + ".next"
		if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, file); err != nil {
			t.Fatal(err)
		}
	}
	access(text)
	n, err := node.New(node.Config{
		Name: "guarded", GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
		Redis: conn.ClientOptions{URL: "redis://" + redis.Addr()}, Durability: conn.DurabilityMemory,
		AllowUnsafeRedis: true, Shards: 4, EventsKeep: 1000, AccessFile: file, Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = n.Start(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = n.Stop(ctx)
	})
	return n.GRPCAddr(), access
}

// signIn pastes a token.
func (p *tab) signIn(token string) {
	p.t.Helper()
	p.typeInto("input[type=password]", token)
	p.press(kb.Enter)
}

// TestRolesOfASession: a viewer sees all and changes nothing, also by forged calls; an operator acts.
func TestRolesOfASession(t *testing.T) {
	c, _ := startGuardedCluster(t, accessText([2]string{"admin", "admin"}, [2]string{"viewer", "viewer"}, [2]string{"operator", "operator"}))
	c.createJob("job", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	p := c.openTab(jobPlace(t, "job"))
	p.waitText("h1", "Sign in")
	p.checkAccessibility("sign-in")
	p.screenshot("sign-in-light")
	p.signIn("wrong")
	p.waitText(".failed", "Sign in again")
	p.signIn(testToken("viewer"))
	p.waitText("h1", "job")
	p.waitText(".who", "token:viewer")
	if cookies := evaluate[string](p, "document.cookie"); cookies != "" {
		t.Errorf("scripts can read the cookies %q", cookies)
	}
	p.click("[data-action=pause-job]")
	p.waitText(".notices", "You need the permission to operate jobs")
	answer := evaluate[string](p, `fetch("v1/namespaces/`+namespaceOf(t)+`/jobs/job:pause", {method: "POST", body: "{}"}).then(r => r.status + "")`)
	if answer != "403" {
		t.Errorf("a forged call: status %s", answer)
	}
	p.click(".menu summary")
	p.click(".panel button")
	p.waitText("h1", "Sign in")
	p.signIn(testToken("operator"))
	p.waitText(".who", "token:operator")
	p.click("[data-action=run-job]")
	p.click("dialog[open] [data-action=run-job-with-payload]")
	p.waitText(".notices", "You need the permission to edit jobs")
	p.waitText("dialog[open] h2", "Run job now")
	p.press(kb.Escape)
	p.waitGone("dialog[open]")
	p.click("[data-action=pause-job]")
	p.waitText("dialog[open]", "Pause job")
}

// TestSessionEndsDuringAnEdit: what was typed is still there after the next sign-in.
func TestSessionEndsDuringAnEdit(t *testing.T) {
	admin, first, second := [2]string{"admin", "admin"}, [2]string{"first", "operator"}, [2]string{"second", "operator"}
	c, access := startGuardedCluster(t, accessText(admin, first, second))
	c.createJob("job", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	p := c.openTab(jobPlace(t, "job"))
	p.signIn(testToken("first"))
	p.waitText(".who", "token:first")
	p.click("[data-action=pause-job]")
	p.waitText("dialog[open]", "Pause job")
	p.press("the reason")
	access(accessText(admin, second))
	p.waitText("dialog[open]", "The session has ended")
	p.checkAccessibility("end of the session")
	p.signIn(testToken("second"))
	p.waitText(".who", "token:second")
	if note := evaluate[string](p, `document.querySelector("dialog[open] input[name=note]")?.value ?? ""`); note != "the reason" {
		t.Errorf("the field has %q; dialogs: %s", note, evaluate[string](p,
			`JSON.stringify([...document.querySelectorAll("dialog")].map(d => [d.open, d.innerText]))`))
	}
	p.click("dialog[open] [data-confirm]")
	p.waitText(".notices", "is paused")
	j, err := c.client.GetJob(t.Context(), "job")
	if err != nil || !strings.Contains(j.GetStatus().GetPauseNote(), "the reason") {
		t.Errorf("note %q, error %v", j.GetStatus().GetPauseNote(), err)
	}
}

// TestLateAnswerOfAnEndedSession: the answer to a call that was sent before a sign-in asks for no other sign-in.
func TestLateAnswerOfAnEndedSession(t *testing.T) {
	admin, first, second := [2]string{"admin", "admin"}, [2]string{"first", "operator"}, [2]string{"second", "operator"}
	c, access := startGuardedCluster(t, accessText(admin, first, second))
	c.createJob("job", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	p := c.openTab(jobPlace(t, "job"))
	p.signIn(testToken("first"))
	p.waitText(".who", "token:first")
	evaluate[bool](p, `(() => {
		const send = window.fetch;
		window.fetch = (url, init) => url.endsWith(":pause")
			? new Promise(resolve => { window.refuseLate = () => resolve(new Response("{}", {status: 401})); })
			: send(url, init);
		return true;
	})()`)
	p.click("[data-action=pause-job]")
	p.waitText("dialog[open]", "Pause job")
	p.click("dialog[open] [data-confirm]")
	p.wait("the call is on its way", `!!window.refuseLate`)
	access(accessText(admin, second))
	p.waitText("dialog[open]", "The session has ended")
	p.signIn(testToken("second"))
	p.waitText(".who", "token:second")
	evaluate[bool](p, `(window.refuseLate(), true)`)
	p.waitText("dialog[open] .failed", "Sign in again")
	asks := evaluate[bool](p, `(async () => {
		for (let frame = 0; frame < 5; frame++) await new Promise(requestAnimationFrame); // a dialog opens after one
		return [...document.querySelectorAll("dialog[open]")].some(d => d.innerText.includes("The session has ended"));
	})()`)
	if asks {
		t.Error("another sign-in is asked for")
	}
}

// TestChangesAreShownToTheirCallerOnly: after a sign-out, and when somebody else has signed in, a tab keeps no names
// and no filters of the changes before.
func TestChangesAreShownToTheirCallerOnly(t *testing.T) {
	admin, first, second := [2]string{"admin", "admin"}, [2]string{"first", "operator"}, [2]string{"second", "operator"}
	c, access := startGuardedCluster(t, accessText(admin, first, second))
	c.createJobs(3, "a")
	place := "#/jobs?filter=labels.team+%3D+a&namespace=" + namespaceOf(t)
	p := c.openTab(place)
	change := func(verb string) {
		t.Helper()
		p.waitText("tbody", "a-")
		p.click(".bulk-menu summary")
		p.click("[data-bulk=Bulk" + verb + "Jobs]")
		p.waitText("dialog[open] [data-confirm]", verb+" 3 jobs")
		p.click("dialog[open] [data-confirm]")
		p.waitText("[data-change=done]", "Done: ")
	}
	checkForgotten := func(when string) {
		t.Helper()
		kept := evaluate[string](p, `JSON.stringify(sessionStorage) + localStorage.getItem("fermata.return")`)
		if strings.Contains(kept, "labels.team") {
			t.Errorf("%s the tab keeps %s", when, kept)
		}
		if p.holds(`!!document.querySelector("[data-change]")`) {
			t.Errorf("%s the change is shown", when)
		}
	}
	p.signIn(testToken("first"))
	p.waitText(".who", "token:first")
	change("Pause")
	evaluate[bool](p, `(() => {
		localStorage.setItem("fermata.return", JSON.stringify({place: location.hash, at: Date.now()})); // of another tab
		return true;
	})()`)
	p.click(".menu summary")
	p.click(".panel button")
	p.waitText("h1", "Sign in")
	checkForgotten("after the sign-out")

	p.signIn(testToken("first"))
	p.waitText(".who", "token:first")
	change("Resume")
	p.reload()
	p.waitText("[data-change=done]", "Done: ")
	access(accessText(admin, second))
	p.waitText("dialog[open]", "The session has ended")
	p.reload()
	p.waitText("h1", "Sign in")
	p.signIn(testToken("second"))
	p.waitText(".who", "token:second")
	p.waitText("tbody", "a-")
	checkForgotten("after the sign-in of another person")
}
