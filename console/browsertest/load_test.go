package browsertest

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

const (
	// loadPeriod is how often each job of the load runs. A run has two events.
	loadPeriod = time.Second
	// loadedJobs is how many jobs a test before a merge creates, and how many of them run.
	loadedJobs, runningJobs = 2000, 20
	// measuredRunning gives 1,000 events a second.
	measuredRunning = 500
	measureTime     = 15 * time.Second
)

// TestConsoleUnderLoad looks at the list of jobs and at the events while many jobs exist and run. CONSOLE_JOBS makes it a
// measurement with so many jobs and 1,000 events a second, which prints what a tab costs.
func TestConsoleUnderLoad(t *testing.T) {
	count, running, measured := loadedJobs, runningJobs, false
	if text := os.Getenv("CONSOLE_JOBS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		count, running, measured = n, measuredRunning, true
	}
	c := startProcesses(t)
	c.createLoad(count, running)
	p := c.openTab("#/jobs?namespace=" + namespaceOf(t))
	p.waitText("tbody", "job-")
	paint := evaluate[float64](p, `performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? -1`)
	first := p.timeOfList("", "job-")
	filtered := p.timeOfList(fmt.Sprintf("id = job-%06d", count-1), fmt.Sprintf("job-%06d", count-1))
	p.goTo("#/events?namespace=" + namespaceOf(t))
	p.waitText("tbody", "succeeded")
	if !measured {
		return
	}
	var pages []time.Duration
	for i := range 9 { // the first list is drawn by code that the browser has not compiled yet
		word := fmt.Sprintf("job-%04d", i+1)
		pages = append(pages, p.timeOfList("id:"+word, word))
	}
	slices.Sort(pages)
	p.goTo("#/events?namespace=" + namespaceOf(t))
	p.waitText("tbody", "succeeded")
	shown := p.countEvents()
	cpu, memory := p.costOf(measureTime)
	rate := float64(p.countEvents()-shown) / measureTime.Seconds()
	t.Logf("%d jobs: first paint %.0f ms, first page %v, filtered page %v, nine further pages %v to %v, median %v; %.0f events/s: %.1f %% of a core, %.0f MB of JavaScript",
		count, paint, first, filtered, pages[0], pages[8], pages[4], rate, 100*cpu, memory/(1<<20))
}

// createLoad creates jobs. The first ones run each second.
func (c *cluster) createLoad(count, running int) {
	c.t.Helper()
	jobs := make([]client.NewJob, count)
	for i := range jobs {
		period := 24 * time.Hour
		if i < running {
			period = loadPeriod
		}
		jobs[i] = client.NewJob{ID: fmt.Sprintf("job-%06d", i), Job: &client.Job{Handler: "ok", Schedule: client.Every(period)}}
	}
	results, err := c.client.CreateJobs(c.t.Context(), jobs, client.CreateJobsOptions{NamesOnly: true})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			c.t.Fatal(r.Err)
		}
	}
	redistest.Eventually(c.t, patience, "runs", func() bool {
		j, err := c.client.GetJob(c.t.Context(), jobs[0].ID)
		return err == nil && j.GetStatus().GetRunsTotal() > 0
	})
}

// timeOfList applies a filter, and returns how long it takes until its rows are shown.
func (p *tab) timeOfList(filter, row string) time.Duration {
	p.t.Helper()
	p.goTo("#/cluster")
	p.waitText("h1", "Cluster")
	ms := evaluate[float64](p, fmt.Sprintf(`new Promise(done => {
		const began = performance.now();
		const look = () => document.querySelector("main h1")?.innerText === "Jobs" && !document.querySelector(".loading")
			&& document.querySelector("tbody")?.innerText.includes(%q) ? done(performance.now() - began) : requestAnimationFrame(look);
		location.hash = "#/jobs?" + new URLSearchParams({namespace: %q, filter: %q});
		look();
	})`, row, namespaceOf(p.t), filter))
	return time.Duration(ms * float64(time.Millisecond)).Round(time.Millisecond)
}

// countEvents returns how many events the page has read.
func (p *tab) countEvents() int {
	return evaluate[int](p, `+document.querySelector(".chips > .soft").innerText.replace(/ .*/, "").replaceAll(",", "")`)
}

// costOf returns the share of a core that the process of the page takes, and the bytes of its JavaScript.
func (p *tab) costOf(span time.Duration) (cpu, bytes float64) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, performance.Enable, performance.EnableParams{}); err != nil {
		p.t.Fatal(err)
	}
	before := p.metrics()
	<-time.After(span)
	after := p.metrics()
	return (after["ProcessTime"] - before["ProcessTime"]) / (after["Timestamp"] - before["Timestamp"]), after["JSHeapUsedSize"]
}

// metrics are what the browser counts of a tab, by name.
func (p *tab) metrics() map[string]float64 {
	p.t.Helper()
	result, err := chromedp.Call(p.ctx, performance.GetMetrics, cdp.Empty{})
	if err != nil {
		p.t.Fatal(err)
	}
	values := map[string]float64{}
	for _, m := range result.Metrics {
		values[m.Name] = m.Value
	}
	return values
}
