// Package browsertest tests the web console in a real browser against real nodes: what a person does, by mouse and by
// keyboard, and what axe-core and the Content-Security-Policy say about it.
package browsertest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/console"
	"github.com/fermata-io/fermata/internal/api/gateway"
	"github.com/fermata-io/fermata/internal/cli/httpapi"
	"github.com/fermata-io/fermata/internal/test/nodetest"
	"github.com/fermata-io/fermata/worker"
)

// patience bounds each wait. Nothing in the tests takes that long unless it fails.
const patience = time.Minute

//go:embed testdata/axe-core/axe.min.js
var axe string

var (
	runner  nodetest.Runner
	browser context.Context // of all tests; each has tabs of its own
)

func TestMain(m *testing.M) {
	runner.M = m
	os.Exit(run())
}

func run() int {
	path, err := exec.LookPath("chromium")
	if err != nil {
		fmt.Fprintln(os.Stderr, "chromium is not here: make deps installs it")
		return 1
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path),
		chromedp.NoSandbox, chromedp.IgnoreCertErrors, chromedp.WindowSize(1440, 900))
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	defer stopAllocator()
	var stopBrowser context.CancelFunc
	browser, stopBrowser = chromedp.NewContext(allocator)
	defer stopBrowser()
	if err := chromedp.Do(browser); err != nil {
		fmt.Fprintln(os.Stderr, "start chromium:", err)
		return 1
	}
	return runner.Run()
}

// cluster is a node with a gateway and a worker.
type cluster struct {
	t      *testing.T
	url    string
	issuer string // host of the issuer to which a sign-in leads; "" if there is none
	client *client.Client
	// addresses are those of its nodes, if the test has started them.
	addresses []string
}

// startCluster serves the console of the node of the tests. Each test has a namespace of its own.
func startCluster(t *testing.T, o gateway.Options) *cluster {
	t.Helper()
	if o.Console == nil {
		o.Console = testConsole()
	}
	return startGateway(t, runner.Address(), o, client.Options{})
}

// startGateway serves the console of a node. The client of the cluster has these options.
func startGateway(t *testing.T, address string, o gateway.Options, clientOptions client.Options) *cluster {
	t.Helper()
	o.Dial = httpapi.Dialer([]string{address}, client.Options{})
	s, err := httpapi.Start(httpapi.Options{
		Address: "127.0.0.1:0", Flag: "rest-addr", Logger: slog.New(slog.DiscardHandler), Gateway: o,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = s.Stop(ctx) // the browser may hold connections
	})
	clientOptions.Namespace = namespaceOf(t)
	c, err := client.Dial([]string{address}, clientOptions)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &cluster{t: t, url: s.URL() + o.BasePath, client: c}
}

func testConsole() *gateway.ConsoleOptions {
	return &gateway.ConsoleOptions{Files: console.Files(), Version: "test"}
}

// namespaceOf is the namespace of a test. The node of the tests lives on, so each run of a test has another one.
func namespaceOf(t *testing.T) string {
	namespaces.Lock()
	defer namespaces.Unlock()
	if namespaces.of[t] == "" {
		name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
		namespaces.runs[name]++
		namespaces.of[t] = fmt.Sprintf("%s-%d", name, namespaces.runs[name])
	}
	return namespaces.of[t]
}

var namespaces = struct {
	sync.Mutex
	of   map[*testing.T]string
	runs map[string]int // how often a test was run
}{of: map[*testing.T]string{}, runs: map[string]int{}}

// startWorker runs the handlers "ok", which succeeds, "fail", which fails, and "wait", which runs until it is cancelled.
func (c *cluster) startWorker() {
	c.t.Helper()
	c.startWorkerAt(worker.Options{Addresses: []string{runner.Address()}, Slots: 8})
}

func (c *cluster) startWorkerAt(o worker.Options) {
	c.t.Helper()
	o.Namespace, o.ID, o.Logger = namespaceOf(c.t), "w-"+namespaceOf(c.t), slog.New(slog.DiscardHandler)
	w, err := worker.New(o)
	if err != nil {
		c.t.Fatal(err)
	}
	w.Handle("ok", func(context.Context, *worker.Task) error { return nil })
	w.Handle("fail", func(context.Context, *worker.Task) error { return errors.New("the disk is full") })
	w.Handle("unavailable", func(context.Context, *worker.Task) error { // its target stays down until somebody looks
		return worker.RetryAfter(errors.New("the disk is full"), time.Hour)
	})
	w.Handle("wait", func(ctx context.Context, _ *worker.Task) error { <-ctx.Done(); return ctx.Err() })
	runWorker(c.t, w)
}

// runWorker runs a worker until the test ends.
func runWorker(t *testing.T, w *worker.Worker) {
	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() { stop(); w.Abort(); ended.Wait() })
}

// createJob registers a job.
func (c *cluster) createJob(id string, j *client.Job) {
	c.t.Helper()
	if _, err := c.client.CreateJob(c.t.Context(), id, j); err != nil {
		c.t.Fatal(err)
	}
}

// tab is a page of the browser that shows the console. At the end of a test it fails for everything that no page may
// do: violate the policy, fail in a script, call another host.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string
}

// reportViolations makes violations of the policy errors of the page.
const reportViolations = `addEventListener("securitypolicyviolation",
	e => console.error("policy violated: " + e.violatedDirective + " " + e.sample))`

// openTab opens the console at a place, such as "#/jobs".
func (c *cluster) openTab(place string) *tab {
	c.t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	p := &tab{t: c.t, ctx: ctx}
	c.t.Cleanup(func() {
		cancel()
		for _, f := range p.takeFaults() {
			c.t.Error(f)
		}
	})
	base, err := url.Parse(c.url)
	if err == nil {
		err = chromedp.Do(ctx)
	}
	if err == nil {
		err = chromedp.Listen(ctx, func(event any) { p.observe(event, base.Host, c.issuer) })
	}
	if err == nil {
		_, err = chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument,
			page.AddScriptToEvaluateOnNewDocumentParams{Source: reportViolations})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	p.do(chromedp.Navigate(c.url + "/" + place))
	p.wait("a heading", `!!document.querySelector("main h1, main h2")`)
	return p
}

// observe records what no page may do.
func (p *tab) observe(event any, hosts ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		p.faults = append(p.faults, "a script failed: "+text)
	case *runtime.EventConsoleAPICalled:
		for _, a := range e.Args {
			p.faults = append(p.faults, fmt.Sprintf("the page reports: %s %s", a.Value, a.Description))
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Source == cdplog.EntrySourceSecurity || e.Entry.Source == cdplog.EntrySourceViolation {
			p.faults = append(p.faults, "the browser reports: "+e.Entry.Text)
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err == nil && !slices.Contains(hosts, u.Host) && u.Scheme != "data" {
			p.faults = append(p.faults, "a request to another host: "+e.Request.URL)
		}
	}
}

// takeFaults returns what was observed since the last call.
func (p *tab) takeFaults() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	faults := p.faults
	p.faults = nil
	return faults
}

// do takes actions within patience.
func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatalf("%v\n%s", err, p.text("body"))
	}
}

// evaluate returns the value of a script; a promise is awaited.
func evaluate[T any](p *tab, script string) T {
	p.t.Helper()
	value, err := tryEvaluate[T](p, script)
	if err != nil {
		p.t.Fatalf("%.300s: %v", script, err)
	}
	return value
}

// tryEvaluate returns the value of a script, or why it has none.
func tryEvaluate[T any](p *tab, script string) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// holds evaluates a condition. It is false while another page replaces this one.
func (p *tab) holds(condition string) bool {
	p.t.Helper()
	value, err := tryEvaluate[bool](p, condition)
	if err != nil && !wasReplaced(err) {
		p.t.Fatalf("%.300s: %v", condition, err)
	}
	return err == nil && value
}

// wasReplaced reports whether a script has no value because another page replaced its page.
func wasReplaced(err error) bool {
	refused, ok := errors.AsType[*cdproto.Error](err)
	return ok && slices.Contains([]string{"Inspected target navigated or closed", "Execution context was destroyed.",
		"Cannot find context with specified id"}, refused.Message)
}

// text is what a person reads of the first such element; "" if there is none.
func (p *tab) text(selector string) string {
	return evaluate[string](p, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

// wait waits until a condition, a script, is true.
func (p *tab) wait(what, condition string) {
	p.t.Helper()
	for begin := time.Now(); !p.holds(condition); {
		if time.Since(begin) > patience {
			p.t.Fatalf("%s: does not appear\n%s", what, p.text("body"))
		}
		<-time.After(30 * time.Millisecond) // between two looks
	}
}

// waitText waits until an element has a text.
func (p *tab) waitText(selector, text string) {
	p.t.Helper()
	p.wait(fmt.Sprintf("%q in %s", text, selector),
		fmt.Sprintf("[...document.querySelectorAll(%q)].some(e => e.innerText.includes(%q))", selector, text))
}

// waitGone waits until there is no such element.
func (p *tab) waitGone(selector string) {
	p.t.Helper()
	p.wait("the end of "+selector, fmt.Sprintf("!document.querySelector(%q)", selector))
}

func (p *tab) click(selector string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// press sends keys to whatever has the focus.
func (p *tab) press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// focus gives an element the focus.
func (p *tab) focus(selector string) {
	p.t.Helper()
	p.do(chromedp.Focus(chromedp.CSS(selector)))
}

// typeInto types into a field, where its cursor is.
func (p *tab) typeInto(selector, text string) {
	p.t.Helper()
	if at := fmt.Sprintf("document.activeElement === document.querySelector(%q)", selector); !evaluate[bool](p, at) {
		p.focus(selector)
	}
	p.press(text)
}

// reload loads the page again, and waits until the new one is loaded.
func (p *tab) reload() {
	p.t.Helper()
	p.do(chromedp.Reload())
}

// goTo opens a place of the console.
func (p *tab) goTo(place string) {
	p.t.Helper()
	evaluate[string](p, fmt.Sprintf("location.hash = %q", place))
}

// setTheme chooses light or dark.
func (p *tab) setTheme(theme string) {
	p.t.Helper()
	evaluate[string](p, fmt.Sprintf("document.documentElement.dataset.theme = %q", theme))
}

// setSize makes the window as large as a screen.
func (p *tab) setSize(width, height int64) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height))
}

// violation is what axe-core finds.
type violation struct {
	ID    string `json:"id"`
	Help  string `json:"help"`
	Nodes []struct {
		HTML    string `json:"html"`
		Summary string `json:"failureSummary"`
	} `json:"nodes"`
}

// checkAccessibility fails for each violation that axe-core finds on the page as it is.
func (p *tab) checkAccessibility(what string) {
	p.t.Helper()
	for _, v := range p.findViolations() {
		for _, n := range v.Nodes {
			p.t.Errorf("%s: %s: %s\n  %.300s\n  %s", what, v.ID, v.Help, n.HTML, n.Summary)
		}
	}
}

func (p *tab) findViolations() []violation {
	p.t.Helper()
	evaluate[bool](p, axe+";true")
	return evaluate[[]violation](p, `axe.run(document, {resultTypes: ["violations"],
		runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then(r => r.violations)`)
}

// screenshot writes a picture if CONSOLE_SCREENSHOTS names a folder, for the documentation and for reviews.
func (p *tab) screenshot(name string) {
	p.t.Helper()
	folder := os.Getenv("CONSOLE_SCREENSHOTS")
	if folder == "" {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// focused describes the element that has the focus.
func (p *tab) focused() string {
	return evaluate[string](p, `(e => e.innerText || e.ariaLabel || e.id || e.tagName)(document.activeElement)`)
}

// TestWaitsOutliveTheirPage: a condition that is evaluated while the page is replaced is evaluated again on the new one.
func TestWaitsOutliveTheirPage(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	p := c.openTab("#/jobs")
	evaluate[bool](p, `window.old = true, setTimeout(() => location.reload()), true`)
	p.wait("the new page", `new Promise(resolve => window.old || resolve(true))`) // the old page never answers
	p.waitText("main h1", "Jobs")
}
