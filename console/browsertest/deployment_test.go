package browsertest

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// putProxyInFront puts a proxy that ends TLS and removes a path before the gateway of a cluster. Browsers see its URL.
func (c *cluster) putProxyInFront(path string) {
	c.t.Helper()
	proxyURL, forward := startProxy(c.t, path)
	forward(c.url)
	c.url = proxyURL
}

// startProxy starts a proxy that ends TLS and removes a path. forward sets the URL to which it passes requests on.
func startProxy(t *testing.T, path string) (proxyURL string, forward func(to string)) {
	t.Helper()
	var to atomic.Pointer[url.URL]
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to.Load())
		r.SetXForwarded()
		r.Out.Host = r.In.Host
	}}
	mux := http.NewServeMux()
	mux.Handle(path+"/", http.StripPrefix(path, proxy))
	s := httptest.NewTLSServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections() // streams of events
		s.Close()
	})
	return s.URL + path, func(text string) {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		to.Store(u)
	}
}

// TestBehindAProxy: a proxy that ends TLS and removes a path needs no setting. People sign in, act and see events.
func TestBehindAProxy(t *testing.T) {
	c, _ := startGuardedCluster(t, accessText([2]string{"admin", "admin"}))
	c.putProxyInFront("/ops/fermata")
	c.createJob("job", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	p := c.openTab(jobPlace(t, "job"))
	p.signIn(testToken("admin"))
	p.waitText("h1", "job")
	p.click("[data-action=pause-job]")
	p.waitText("dialog[open]", "Pause job")
	p.click("dialog[open] [data-confirm]")
	p.waitText(".notices", "is paused")
	p.goTo("#/events?namespace=" + namespaceOf(t))
	p.waitText("tbody", "job.paused")
	if cookies := evaluate[string](p, "document.cookie"); cookies != "" {
		t.Errorf("scripts can read the cookies %q", cookies)
	}
}

// TestSleepAndWake: a page that was frozen shows what happened meanwhile.
func TestSleepAndWake(t *testing.T) {
	c := startCluster(t, gateway.Options{})
	c.createJob("job", &client.Job{Handler: "none", Schedule: client.Every(time.Hour)})
	jobs := c.openTab("#/jobs?namespace=" + namespaceOf(t))
	jobs.waitText("tbody", "scheduled")
	events := c.openTab("#/events?namespace=" + namespaceOf(t))
	events.waitText("tbody", "job.created")
	for _, p := range []*tab{jobs, events} {
		p.setLifecycle(page.SetWebLifecycleStateStateFrozen)
	}
	if _, err := c.client.PauseJob(t.Context(), "job", client.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, patience, "the pause", func() bool {
		j, err := c.client.GetJob(t.Context(), "job")
		return err == nil && j.GetStatus().GetPauseTime() != nil
	})
	for _, p := range []*tab{jobs, events} {
		p.setLifecycle(page.SetWebLifecycleStateStateActive)
	}
	jobs.waitText("tbody", "paused")
	events.waitText("tbody", "job.paused")
}

// setLifecycle freezes or wakes a page, as browsers do when a machine sleeps or a tab is in the background.
func (p *tab) setLifecycle(state page.SetWebLifecycleStateState) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, page.SetWebLifecycleState, page.SetWebLifecycleStateParams{State: state}); err != nil {
		p.t.Fatal(err)
	}
}
